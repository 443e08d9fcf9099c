"""Records of __consumer_offsets as bytes: kind and key, version and value.

Kinds that are not known here (share and streams groups, newer ones) decode to None, so that
whoever loads a log written by Kafka can pass over them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias, TypeVar

from ottla.coordinator.groups import records
from ottla.coordinator.groups.consumer import records as consumer_records
from ottla.coordinator.groups.records import NO_EXPIRATION, RecordKey, RecordValue
from ottla.model.ids import ZERO_UUID
from ottla.ports import Buffer
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.message import Message
from ottla.wire.primitives import uvarint

GroupRecord: TypeAlias = tuple[RecordKey, RecordValue | None]
"""A key and its value; None deletes what the key stands for."""

M = TypeVar("M", bound=Message)
_PREFIX: Final = Struct(">h")
_MAX_STRING_BYTES: Final = 0x7FFF
_COMMIT_HEAD: Final = Struct(">hqi")  # version, offset, leader epoch
_COMMIT_TIMESTAMP: Final = Struct(">q")
_LEGACY_OFFSET_COMMIT: Final = 0  # written by Kafka 0.8.1, laid out like its successor

KINDS: Final[dict[int, tuple[type[RecordKey], type[RecordValue]]]] = {
    _LEGACY_OFFSET_COMMIT: (records.OffsetCommitKey, records.OffsetCommitValue),
    **{
        key.API_KEY: (key, value)
        for key, value in (
            (records.OffsetCommitKey, records.OffsetCommitValue),
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
"""The key and value classes of each kind of record."""


class RecordError(ValueError):
    """A record that is damaged, or of a newer version than this broker knows."""


def is_too_long(text: str) -> bool:
    """Whether a text does not fit into a string of a record."""
    return len(text.encode()) > _MAX_STRING_BYTES


def encode_key(key: RecordKey) -> bytes:
    """The key of a log record: the kind, then the fields."""
    return _PREFIX.pack(key.API_KEY) + encoder(type(key), 0)(key)


def encode_value(value: RecordValue) -> bytes:
    """The value of a log record: the version it is written in, then the fields."""
    version = value.written_version
    return _PREFIX.pack(version) + encoder(type(value), version)(value)


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a log record."""
    key, value = record
    if type(key) is records.OffsetCommitKey:
        encoded_key = key.encoded
        if encoded_key is None:
            encoded_key = key.encoded = encode_key(key)
        if type(value) is records.OffsetCommitValue and value.expire_timestamp == NO_EXPIRATION:
            return encoded_key, _commit_value(value)
    else:
        encoded_key = encode_key(key)
    return encoded_key, None if value is None else encode_value(value)


def _commit_value(value: records.OffsetCommitValue) -> bytes:
    """What `encode_value` makes of a commit, at a third of its price."""
    metadata = value.metadata.encode()
    return b"".join(
        (
            _COMMIT_HEAD.pack(
                records.OffsetCommitValue.WRITTEN_VERSION, value.offset, value.leader_epoch
            ),
            uvarint(len(metadata) + 1),
            metadata,
            _COMMIT_TIMESTAMP.pack(value.commit_timestamp),
            b"\0" if value.topic_id == ZERO_UUID else b"\1\0\x10" + value.topic_id,
        )
    )


def decode(key: Buffer | None, value: Buffer | None) -> GroupRecord | None:
    """What a log record says; None for a kind not known here, RecordError for nonsense."""
    if key is None or len(key) < _PREFIX.size:
        raise RecordError("the record has no key")
    kind = _PREFIX.unpack_from(key)[0]
    classes = KINDS.get(kind)
    if classes is None:
        return None
    key_class, value_class = classes
    made_key = _decode(key_class, 0, key)
    if value is None:
        return made_key, None
    if len(value) < _PREFIX.size:
        raise RecordError(f"the value of a {key_class.__name__} is empty")
    version = _PREFIX.unpack_from(value)[0]
    if not 0 <= version <= value_class.MAX_VERSION:
        raise RecordError(
            f"{value_class.__name__} has no version {version}: a newer broker wrote it"
        )
    return made_key, _decode(value_class, version, value)


def _decode(message: type[M], version: int, data: Buffer) -> M:
    try:
        made, end = decoder(message, version)(data, _PREFIX.size, len(data))
    except DecodeError as error:
        raise RecordError(f"damaged {message.__name__}: {error}") from error
    if end != len(data):
        raise RecordError(f"{len(data) - end} bytes follow a {message.__name__}")
    return made
