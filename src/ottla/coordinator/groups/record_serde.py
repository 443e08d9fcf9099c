"""Records of __consumer_offsets as bytes.

Kinds of records that are unknown here (of share and streams groups, or newer ones) decode to
None, so that a log written by Kafka can be loaded without them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from ottla.coordinator.groups import records
from ottla.coordinator.groups.consumer import records as consumer_records
from ottla.coordinator.groups.records import NO_EXPIRATION, OffsetCommitKey, OffsetCommitValue
from ottla.coordinator.runtime.record import (
    CoordinatorRecord,
    RecordKinds,
    decode_record,
    encode_key,
    encode_value,
)
from ottla.model.ids import ZERO_UUID
from ottla.ports import Buffer
from ottla.wire.primitives import uvarint

GroupRecord: TypeAlias = CoordinatorRecord

OFFSET_COMMIT_PREFIX: Final = b"\0\1"
"""The beginning of every key of an offset commit."""

_COMMIT_HEAD: Final = Struct(">hqi")  # version, offset, leader epoch
_COMMIT_TIMESTAMP: Final = Struct(">q")
_COMMIT_WITHOUT_METADATA: Final = Struct(">hqiBq")  # with the length of the metadata in between
_COMMIT_VERSION: Final = OffsetCommitValue.WRITTEN_VERSION
_LEGACY_OFFSET_COMMIT: Final = 0  # written by Kafka 0.8.1 in the same layout

KINDS: Final[RecordKinds] = {
    _LEGACY_OFFSET_COMMIT: (OffsetCommitKey, OffsetCommitValue),
    **{
        key.API_KEY: (key, value)
        for key, value in (
            (OffsetCommitKey, OffsetCommitValue),
            (records.GroupMetadataKey, records.GroupMetadataValue),
            (
                consumer_records.ConsumerGroupMetadataKey,
                consumer_records.ConsumerGroupMetadataValue,
            ),
            (
                consumer_records.ConsumerGroupPartitionMetadataKey,
                consumer_records.ConsumerGroupPartitionMetadataValue,
            ),
            (
                consumer_records.ConsumerGroupMemberMetadataKey,
                consumer_records.ConsumerGroupMemberMetadataValue,
            ),
            (
                consumer_records.ConsumerGroupTargetAssignmentMetadataKey,
                consumer_records.ConsumerGroupTargetAssignmentMetadataValue,
            ),
            (
                consumer_records.ConsumerGroupTargetAssignmentMemberKey,
                consumer_records.ConsumerGroupTargetAssignmentMemberValue,
            ),
            (
                consumer_records.ConsumerGroupCurrentMemberAssignmentKey,
                consumer_records.ConsumerGroupCurrentMemberAssignmentValue,
            ),
            (
                consumer_records.ConsumerGroupRegularExpressionKey,
                consumer_records.ConsumerGroupRegularExpressionValue,
            ),
        )
    },
}


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record as bytes."""
    key, value = record
    if type(key) is OffsetCommitKey:
        encoded_key = key.encoded
        if encoded_key is None:
            encoded_key = key.encoded = encode_key(key)
        if type(value) is OffsetCommitValue and value.expire_timestamp == NO_EXPIRATION:
            return encoded_key, _encode_offset_commit(value)
    else:
        encoded_key = encode_key(key)
    return encoded_key, None if value is None else encode_value(value)


def _encode_offset_commit(value: OffsetCommitValue) -> bytes:
    """Return the same bytes as `encode_value`, in a third of the time."""
    topic_id = value.topic_id
    tags = b"\0" if topic_id == ZERO_UUID else b"\1\0\x10" + topic_id
    if not value.metadata:
        return (
            _COMMIT_WITHOUT_METADATA.pack(
                _COMMIT_VERSION, value.offset, value.leader_epoch, 1, value.commit_timestamp
            )
            + tags
        )
    metadata = value.metadata.encode()
    return b"".join(
        (
            _COMMIT_HEAD.pack(_COMMIT_VERSION, value.offset, value.leader_epoch),
            uvarint(len(metadata) + 1),
            metadata,
            _COMMIT_TIMESTAMP.pack(value.commit_timestamp),
            tags,
        )
    )


def decode(key: Buffer | None, value: Buffer | None) -> GroupRecord | None:
    """Return the record that a log record holds, or None if its kind is unknown here.

    Raise RecordError if it cannot be decoded.
    """
    return decode_record(KINDS, key, value)
