"""Fetch responses on the wire, versions 4 to 18, encoded by hand because it is the hot path.

A response is a list of parts: bytes, and slices of segment files which the edge sends without
copying them through the process. The records were read before: the encoder reads no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker.codecs.current_leaders import (
    NO_TAGS,
    BrokerEndpoint,
    Leader,
    endpoint_tags,
    leader_tags,
)
from ottla.broker.codecs.fetch_request import FIRST_FLEXIBLE, FIRST_TOPIC_ID
from ottla.broker.codecs.large_request import MOST_PARTITIONS
from ottla.log.segment.file_slice import FileSlice, FileSlices
from ottla.log.segment.txn_index import pack_aborted
from ottla.model.steps import Steps
from ottla.wire.primitives import ONE_BYTE, uvarint

if TYPE_CHECKING:
    from ottla.log.segment.last_write import LastWrite

FIRST_WITH_LEADERS: Final = 16

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_CURRENT_LEADER: Final = 1  # a tagged field of a partition in the response
_HEAD_FLEXIBLE: Final = Struct(">iibihi")  # size, correlation id, tags, throttle, error, session id
_HEAD_V7: Final = Struct(">iiihii")  # size, correlation id, throttle, error, session id, topics
_HEAD_V4: Final = Struct(">iiii")  # size, correlation id, throttle, topics
_DATA: Final = Struct(">ihqqq")
_DATA_V4: Final = Struct(">ihqq")
_PAIR_BYTES: Final = 16
_PAIR_AND_TAGS_BYTES: Final = 17
_pack_one_head: Final = Struct(">iibihiB").pack  # _HEAD_FLEXIBLE, count of topics
# Count of partitions, _DATA, aborted, preferred replica.
_pack_one_data: Final = Struct(">BihqqqBi").pack
_pack_one_whole: Final = Struct(">iibihiB16sBihqqqBi").pack  # both, around a topic id
_ONE_TAIL: Final = NO_TAGS * 3  # of the partition, the topic and the response
_ENCODED_A_STEP: Final = 100
_NO_ABORTED: Final = b"\x01\xff\xff\xff\xff"
_LARGE_BYTES: Final = 64 * 1024
"""Records in memory of this size are not copied into the frame: they are a part of their own."""


class PartitionData:
    """The answer for one partition. `diverging` is an epoch and its end offset.

    `aborted` has entries of the transaction index: the aborted transactions in the records, for
    read_committed.
    """

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "key",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "partition_index",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        key: bytes,
        partition_index: int,
        error: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: FileSlice | FileSlices | LastWrite | None,
        diverging: tuple[int, int] | None = None,
        leader: Leader | None = None,
        preferred_read_replica: int = -1,
        aborted: bytes | bytearray = b"",
    ) -> None:
        self.key = key
        self.partition_index = partition_index
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.diverging = diverging
        self.leader = leader
        self.preferred_read_replica = preferred_read_replica
        self.aborted = aborted

    @property
    def is_plain(self) -> bool:
        """True if there is nothing to say but offsets, an error and records."""
        return (
            self.diverging is None
            and self.leader is None
            and self.preferred_read_replica < 0
            and not self.aborted
        )


Records: TypeAlias = bytes | FileSlice | FileSlices | None
"""Records of one partition: in memory, or where they lie in a file."""


def encode_fetch_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    data: list[PartitionData],
    read: list[Records],
    throttle_ms: int = 0,
    endpoints: Sequence[BrokerEndpoint] = (),
) -> list[bytes | FileSlice]:
    """Return the whole response frame as parts to be sent one after the other.

    `read` has the records of each partition of `data`: in memory, or where they lie in a file.
    """
    count = len(data)
    flexible = version >= FIRST_FLEXIBLE
    if count == 1 and flexible and not endpoints and data[0].is_plain:
        return _encode_one(
            version, correlation_id, error_code, session_id, data[0], read[0], throttle_ms
        )
    parts: list[bytes | FileSlice] = []
    pending: list[bytes] = []
    size = 0
    topics = 0
    position = 0
    while position < count:
        key = data[position].key
        stop = position + 1
        while stop < count and data[stop].key == key:
            stop += 1
        topics += 1
        pending.append(_encode_topic(version, key, stop - position))
        for number in range(position, stop):
            item, records = data[number], read[number]
            if records is None:
                pending.append(_encode_partition(version, item, 0))
            elif isinstance(records, bytes) and len(records) < _LARGE_BYTES:
                pending.append(_encode_partition(version, item, len(records)))
                pending.append(records)
            else:
                length = _length(records)
                pending.append(_encode_partition(version, item, length))
                head = b"".join(pending)
                size += len(head) + length
                parts.append(head)
                parts += _parts(records)
                pending = []
            if flexible:
                pending.append(_partition_tags(item))
        if flexible:
            pending.append(NO_TAGS)
        position = stop
    if flexible:
        pending.append(endpoint_tags(endpoints) if endpoints else NO_TAGS)
    tail = b"".join(pending)
    size += len(tail)
    head = _encode_head(version, correlation_id, throttle_ms, error_code, session_id, topics, size)
    if parts:
        parts[0] = head + parts[0]  # type: ignore[operator]
        parts.append(tail)
    else:
        parts.append(head + tail)
    return parts


def _encode_one(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    item: PartitionData,
    records: Records,
    throttle_ms: int,
) -> list[bytes | FileSlice]:
    """Return the response about one partition with nothing special: nearly always, in one go."""
    key = item.key
    is_bytes = isinstance(records, bytes)
    length = 0 if records is None else len(records) if is_bytes else records.length  # type: ignore[union-attr]
    if version >= FIRST_TOPIC_ID:
        topic = key
    else:
        topic = (ONE_BYTE[len(key) + 1] if len(key) < 0x7F else uvarint(len(key) + 1)) + key
    count = ONE_BYTE[length + 1] if length < 0x7F else uvarint(length + 1)
    if version >= FIRST_TOPIC_ID and is_bytes and length < _LARGE_BYTES:
        whole = _pack_one_whole(
            71 + len(count) + length,
            correlation_id, 0, throttle_ms, error_code, session_id, 2, key,
            2, item.partition_index, item.error, item.high_watermark, item.last_stable_offset,
            item.log_start_offset, 1, -1,
        )  # fmt: skip
        return [b"".join((whole, count, records, _ONE_TAIL))]  # type: ignore[arg-type]
    head = _pack_one_head(
        55 + len(topic) + len(count) + length,  # 16 of the head, 36 of the data, 3 of the tail
        correlation_id, 0, throttle_ms, error_code, session_id, 2,
    )  # fmt: skip
    body = _pack_one_data(
        2, item.partition_index, item.error, item.high_watermark, item.last_stable_offset,
        item.log_start_offset, 1, -1,
    )  # fmt: skip
    if records is None:
        return [b"".join((head, topic, body, count, _ONE_TAIL))]
    if is_bytes and length < _LARGE_BYTES:
        return [b"".join((head, topic, body, count, records, _ONE_TAIL))]  # type: ignore[arg-type]
    return [b"".join((head, topic, body, count)), *_parts(records), _ONE_TAIL]


def encode_fetch_in_steps(
    version: int,
    correlation_id: int,
    session_id: int,
    data: list[PartitionData],
    read: list[Records],
    throttle_ms: int,
) -> Steps[list[bytes | FileSlice]]:
    """Return what `encode_fetch_response` returns, for very many partitions."""
    parts: list[bytes | FileSlice] = []
    chunks: list[bytes] = []
    pending: list[bytes] = []
    topics = position = 0
    flexible = version >= FIRST_FLEXIBLE
    while position < len(data):
        stop = position + 1
        while stop < len(data) and data[stop].key == data[position].key:
            stop += 1
            if not stop % MOST_PARTITIONS:
                yield
        topics += 1
        pending.append(_encode_topic(version, data[position].key, stop - position))
        for number in range(position, stop):
            item, records = data[number], read[number]
            length = 0 if records is None else _length(records)
            pending.append(_encode_partition(version, item, length))
            if isinstance(records, bytes) and len(records) < _LARGE_BYTES:
                pending.append(records)
            elif records is not None:
                parts += (b"".join([*chunks, *pending]), *_parts(records))
                chunks, pending = [], []
            if flexible:
                pending.append(_partition_tags(item))
            if not number % _ENCODED_A_STEP:
                chunks.append(b"".join(pending))
                pending = []
                yield
        if flexible:
            pending.append(b"\0")
        position = stop
        if not topics % _ENCODED_A_STEP:
            yield
    if flexible:
        pending.append(b"\0")
    parts.append(b"".join([*chunks, *pending]))
    size = sum(_length(part) for part in parts)
    head = _encode_head(version, correlation_id, throttle_ms, 0, session_id, topics, size)
    return [head, *parts]


def _parts(records: bytes | FileSlice | FileSlices) -> Sequence[bytes | FileSlice]:
    return records.parts if isinstance(records, FileSlices) else (records,)


def _length(part: bytes | FileSlice | FileSlices) -> int:
    return len(part) if isinstance(part, bytes) else part.length


def _encode_head(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: int,
    size: int,
) -> bytes:
    if version >= FIRST_FLEXIBLE:
        count = uvarint(topics + 1)
        return (
            _HEAD_FLEXIBLE.pack(
                15 + len(count) + size, correlation_id, 0, throttle_ms, error_code, session_id
            )
            + count
        )
    if version >= 7:
        return _HEAD_V7.pack(18 + size, correlation_id, throttle_ms, error_code, session_id, topics)
    return _HEAD_V4.pack(12 + size, correlation_id, throttle_ms, topics)


def _encode_topic(version: int, key: bytes, partitions: int) -> bytes:
    if version >= FIRST_TOPIC_ID:
        return key + uvarint(partitions + 1)
    if version >= FIRST_FLEXIBLE:
        return uvarint(len(key) + 1) + key + uvarint(partitions + 1)
    return _I16.pack(len(key)) + key + _I32.pack(partitions)


def _encode_partition(version: int, item: PartitionData, length: int) -> bytes:
    index, code, high_watermark = item.partition_index, item.error, item.high_watermark
    last_stable_offset, log_start_offset = item.last_stable_offset, item.log_start_offset
    preferred, aborted = item.preferred_read_replica, item.aborted
    if version >= FIRST_FLEXIBLE:
        return (
            _DATA.pack(index, code, high_watermark, last_stable_offset, log_start_offset)
            + (
                _NO_ABORTED
                if preferred < 0 and not aborted
                else _compact_aborted(aborted) + _I32.pack(preferred)
            )
            + uvarint(length + 1)
        )
    if version >= 5:
        fixed = _DATA.pack(index, code, high_watermark, last_stable_offset, log_start_offset)
    else:
        fixed = _DATA_V4.pack(index, code, high_watermark, last_stable_offset)
    replica = _I32.pack(preferred) if version >= 11 else b""
    return fixed + _legacy_aborted(aborted) + replica + _I32.pack(length)


def _compact_aborted(entries: bytes | bytearray) -> bytes:
    packed = pack_aborted(entries, tag_bytes=1)
    return uvarint(len(packed) // _PAIR_AND_TAGS_BYTES + 1) + packed


def _legacy_aborted(entries: bytes | bytearray) -> bytes:
    packed = pack_aborted(entries, tag_bytes=0)
    return _I32.pack(len(packed) // _PAIR_BYTES) + packed


def _partition_tags(item: PartitionData) -> bytes:
    if item.diverging is None:
        return NO_TAGS if item.leader is None else leader_tags(_CURRENT_LEADER, item.leader)
    epoch, end_offset = item.diverging
    body = Struct(">iqb").pack(epoch, end_offset, 0)
    return b"\x01\x00" + uvarint(len(body)) + body
