"""The records of `__remote_log_metadata`, in Kafka's encoding (KIP-405).

A record's value is the version of the frame, the type and its version as varints, then the fields,
as in the metadata log. Its key is null. Which partition of the topic has the records of a user's
partition, `metadata_partition` says.

A segment of a compacted topic has custom metadata, which is for the plug-in of the store in Kafka:
a version, the offset up to which it is clean, and the ids of the segments that it replaces. An
update of its state has it without ids if the segment was found to be clean up to a later offset.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import Final, NamedTuple, TypeAlias

from ottla.log.state.leader_epochs import EpochEntry
from ottla.model.ids import REMOTE_LOG_METADATA_TOPIC
from ottla.wire.primitives import DecodeError, read_uvarint, skip_tags, uvarint

_FRAME_VERSION: Final = 1
_SEGMENT, _UPDATE, _PARTITION_DELETE, _VERSION = 0, 1, 2, 0
_MOST_EPOCHS: Final = 1_000_000
_TXN_INDEX_EMPTY: Final = 0
"""The tagged field of a segment record that says that no transaction was aborted in it."""
_PARTITION = Struct(">16si")
_FIELDS = Struct(">qqiqq")  # start and end offset, broker, max timestamp, event timestamp
_UPDATE_FIELDS = Struct(">iq")  # broker, event timestamp
_DELETE_FIELDS = Struct(">iqb")  # broker, event timestamp, state
_EPOCH = Struct(">iq")
_SIZE = Struct(">i")
_NO_TAGS: Final = b"\0"
_NULL: Final = b"\0"
_CUSTOM = Struct(">bq")  # version, the offset up to which the segment is clean; then ids
_CUSTOM_VERSION: Final = 0
_ID_BYTES: Final = 16
UNKNOWN: Final = -1


class SegmentState(IntEnum):
    """The life of a remote segment."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """How far the deletion of a partition's remote segments is."""

    MARKED = 0
    STARTED = 1
    FINISHED = 2


class RemotePartition(NamedTuple):
    """A partition of a topic, by id. Its name is that of the topic's."""

    topic: str
    topic_id: bytes
    partition: int


class SegmentMetadata(NamedTuple):
    """A remote segment. Offsets are inclusive.

    The first epoch begins with the segment, or with the log if that begins later.
    """

    partition: RemotePartition
    segment_id: bytes
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    leader_epochs: tuple[EpochEntry, ...]
    size: int
    state: SegmentState = SegmentState.COPY_STARTED
    has_aborted: bool = True
    """False if no transaction was aborted in it: it has no transaction index."""
    clean_upto: int = UNKNOWN
    """None of its records has a key that a later record below this offset has as well."""
    replaces: tuple[bytes, ...] = ()
    """The ids of the segments from which it was rewritten. It takes their place when finished."""


class SegmentUpdate(NamedTuple):
    """A new state of a segment."""

    partition: RemotePartition
    segment_id: bytes
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState
    clean_upto: int = UNKNOWN
    """Of a finished segment that stays as it is: up to where it is clean now."""


class PartitionDelete(NamedTuple):
    """A new state of the deletion of a partition."""

    partition: RemotePartition
    broker_id: int
    event_timestamp_ms: int
    state: PartitionDeleteState


MetadataRecord: TypeAlias = SegmentMetadata | SegmentUpdate | PartitionDelete


def encode_metadata(record: MetadataRecord) -> bytes:
    """Return a record's value."""
    if isinstance(record, SegmentMetadata):
        return _head(_SEGMENT) + _segment(record)
    if isinstance(record, SegmentUpdate):
        return b"".join(
            (
                _head(_UPDATE),
                _segment_id(record.partition, record.segment_id),
                _UPDATE_FIELDS.pack(record.broker_id, record.event_timestamp_ms),
                _custom(record.clean_upto, ()),
                bytes((record.state,)),
                _NO_TAGS,
            )
        )
    fields = record.broker_id, record.event_timestamp_ms, record.state
    name = _partition(record.partition)
    return b"".join((_head(_PARTITION_DELETE), name, _DELETE_FIELDS.pack(*fields), _NO_TAGS))


def _head(kind: int) -> bytes:
    return bytes((_FRAME_VERSION, kind, _VERSION))


def _partition(partition: RemotePartition) -> bytes:
    name = partition.topic.encode()
    ids = _PARTITION.pack(partition.topic_id, partition.partition)
    return b"".join((uvarint(len(name) + 1), name, ids, _NO_TAGS))


def _segment_id(partition: RemotePartition, segment_id: bytes) -> bytes:
    return b"".join((_partition(partition), segment_id, _NO_TAGS))


def _segment(segment: SegmentMetadata) -> bytes:
    parts = [
        _segment_id(segment.partition, segment.segment_id),
        _FIELDS.pack(
            segment.start_offset,
            segment.end_offset,
            segment.broker_id,
            segment.max_timestamp_ms,
            segment.event_timestamp_ms,
        ),
        uvarint(len(segment.leader_epochs) + 1),
    ]
    for entry in segment.leader_epochs:
        parts += (_EPOCH.pack(*entry), _NO_TAGS)
    parts += (_SIZE.pack(segment.size), _custom(segment.clean_upto, segment.replaces))
    parts.append(bytes((segment.state,)))
    parts.append(_NO_TAGS if segment.has_aborted else b"\x01\x00\x01\x01")
    return b"".join(parts)


def _custom(clean_upto: int, replaces: tuple[bytes, ...]) -> bytes:
    if clean_upto == UNKNOWN and not replaces:
        return _NULL
    content = _CUSTOM.pack(_CUSTOM_VERSION, clean_upto) + b"".join(replaces)
    return uvarint(len(content) + 1) + content


def decode_metadata(value: bytes) -> MetadataRecord | None:
    """Return the record of a value; None if it is of a type that is not known.

    Raise DecodeError if it is damaged.
    """
    try:
        frame_version, p = read_uvarint(value, 0, len(value))
        kind, p = read_uvarint(value, p, len(value))
        version, p = read_uvarint(value, p, len(value))
        if frame_version != _FRAME_VERSION or version != _VERSION:
            return None
        if kind == _SEGMENT:
            return _read_segment(value, p)
        if kind == _UPDATE:
            return _read_update(value, p)
        if kind == _PARTITION_DELETE:
            partition, p = _read_partition(value, p)
            broker_id, at_ms, state = _DELETE_FIELDS.unpack_from(value, p)
            return PartitionDelete(partition, broker_id, at_ms, PartitionDeleteState(state))
        return None
    except DecodeError:
        raise
    except (IndexError, error, ValueError) as cause:
        raise DecodeError(f"a record of {REMOTE_LOG_METADATA_TOPIC} is damaged: {cause}") from cause


def _read_partition(value: bytes, p: int) -> tuple[RemotePartition, int]:
    length, p = read_uvarint(value, p, len(value))
    end = p + max(length - 1, 0)
    topic_id, index = _PARTITION.unpack_from(value, end)
    partition = RemotePartition(value[p:end].decode(), topic_id, index)
    return partition, skip_tags(value, end + _PARTITION.size, len(value))


def _read_segment_id(value: bytes, p: int) -> tuple[RemotePartition, bytes, int]:
    partition, p = _read_partition(value, p)
    segment_id = value[p : p + 16]
    return partition, segment_id, skip_tags(value, p + 16, len(value))


def _read_update(value: bytes, p: int) -> SegmentUpdate:
    partition, segment_id, p = _read_segment_id(value, p)
    broker_id, at_ms = _UPDATE_FIELDS.unpack_from(value, p)
    custom_start = p + _UPDATE_FIELDS.size
    p = _skip_bytes(value, custom_start)
    clean_upto, _ = _read_custom(value, custom_start, p)
    return SegmentUpdate(
        partition, segment_id, broker_id, at_ms, SegmentState(value[p]), clean_upto
    )


def _read_segment(value: bytes, p: int) -> SegmentMetadata:
    partition, segment_id, p = _read_segment_id(value, p)
    start, end, broker_id, max_timestamp, at_ms = _FIELDS.unpack_from(value, p)
    count, p = read_uvarint(value, p + _FIELDS.size, len(value))
    if count - 1 > min(_MOST_EPOCHS, (len(value) - p) // _EPOCH.size):
        raise DecodeError(f"{count - 1} leader epochs are cut off")
    epochs = []
    for _ in range(count - 1):
        epochs.append(EpochEntry._make(_EPOCH.unpack_from(value, p)))
        p = skip_tags(value, p + _EPOCH.size, len(value))
    size = _SIZE.unpack_from(value, p)[0]
    custom_start = p + _SIZE.size
    p = _skip_bytes(value, custom_start)
    state = SegmentState(value[p])
    return SegmentMetadata(
        partition, segment_id, start, end, max_timestamp, broker_id, at_ms, tuple(epochs), size,
        state, not _is_txn_index_empty(value, p + 1), *_read_custom(value, custom_start, p),
    )  # fmt: skip


def _read_custom(value: bytes, p: int, end: int) -> tuple[int, tuple[bytes, ...]]:
    """Return what the custom metadata of a segment says; that of others says nothing."""
    _, p = read_uvarint(value, p, len(value))
    ids = p + _CUSTOM.size
    if end < ids or end > len(value) or (end - ids) % _ID_BYTES or value[p] != _CUSTOM_VERSION:
        return UNKNOWN, ()
    return _CUSTOM.unpack_from(value, p)[1], tuple(
        value[at : at + _ID_BYTES] for at in range(ids, end, _ID_BYTES)
    )


def _is_txn_index_empty(value: bytes, p: int) -> bool:
    count, p = read_uvarint(value, p, len(value))
    for _ in range(count):
        tag, p = read_uvarint(value, p, len(value))
        size, p = read_uvarint(value, p, len(value))
        if tag == _TXN_INDEX_EMPTY and size:
            return bool(value[p])
        p += size
    return False


def _skip_bytes(value: bytes, p: int) -> int:
    length, p = read_uvarint(value, p, len(value))
    return p + max(length - 1, 0)


def metadata_partition(topic_id: bytes, partition: int, count: int) -> int:
    """Return the partition of the topic that has the records of a user's partition."""
    hashed = 1
    for number in (
        _long_hash(int.from_bytes(topic_id[8:])),
        _long_hash(int.from_bytes(topic_id[:8])),
        partition,
    ):
        hashed = (31 * hashed + number) & 0xFFFFFFFF
    return (_murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % count


def _long_hash(number: int) -> int:
    """Return what Java's Long.hashCode returns, without its sign."""
    return (number ^ (number >> 32)) & 0xFFFFFFFF


def _murmur2(four_bytes: bytes) -> int:
    """Return Kafka's murmur2 of four bytes."""
    multiplier = 0x5BD1E995
    hashed = 0x9747B28C ^ 4
    word = int.from_bytes(four_bytes, "little") * multiplier & 0xFFFFFFFF
    word = (word ^ word >> 24) * multiplier & 0xFFFFFFFF
    hashed = hashed * multiplier & 0xFFFFFFFF ^ word
    hashed = (hashed ^ hashed >> 13) * multiplier & 0xFFFFFFFF
    return hashed ^ hashed >> 15
