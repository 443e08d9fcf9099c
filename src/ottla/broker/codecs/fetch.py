"""Fetch on the wire, versions 4 to 18, written by hand because it is the hot path.

A response is a list of parts: bytes, and slices of segment files which the edge sends
without copying them through the process.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple, TypeAlias

from ottla.log.segment.file_slice import FileSlice
from ottla.wire.primitives import DecodeError, read_uvarint, skip_tags, uvarint

FIRST_FLEXIBLE = 12
FIRST_TOPIC_ID = 13

_I16 = Struct(">h")
_I32 = Struct(">i")
_REPLICA_STATE = 1  # a tagged field: replica id and epoch


class FetchPartitionRequest(NamedTuple):
    """One partition of a fetch; `key` is its topic's name in UTF-8, or id from version 13."""

    key: bytes
    partition_index: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """What a consumer or follower asks for."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartitionRequest]
    forgotten: list[tuple[bytes, int]]


class PartitionData(NamedTuple):
    """The answer for one partition."""

    key: bytes
    partition_index: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileSlice | None
    diverging: tuple[int, int] | None = None  # epoch, end offset


Records: TypeAlias = bytes | FileSlice | None
"""Records of one partition: in memory, or where they lie in a file."""

_FIXED = {  # version: struct of the fields before the topics
    4: Struct(">iiiib"),
    7: Struct(">iiiibii"),
    15: Struct(">iiibii"),
}
_PARTITION = {  # version: struct of a partition
    4: Struct(">iqi"),
    5: Struct(">iqqi"),
    9: Struct(">iiqqi"),
    12: Struct(">iiqiqi"),
}


def decode_fetch(
    version: int, buffer: bytearray, view: memoryview, start: int, end: int
) -> FetchRequest:
    """Return the request whose body is [start, end)."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(version, buffer, view, start, end)
        return _decode_legacy(version, buffer, view, start, end)
    except (IndexError, error) as cause:
        raise DecodeError("the Fetch request ends too early") from cause


def _decode_flexible(
    version: int, buffer: bytearray, view: memoryview, p: int, end: int
) -> FetchRequest:
    replica_id = -1
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = _FIXED[15].unpack_from(
            buffer, p
        )
        p += 21
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = _FIXED[
            7
        ].unpack_from(buffer, p)
        p += 25
    unpack = _PARTITION[12].unpack_from
    partitions: list[FetchPartitionRequest] = []
    topic_count = buffer[p]
    p += 1
    if topic_count >= 0x80:
        topic_count, p = read_uvarint(buffer, p - 1, end)
    for _ in range(topic_count - 1):
        key, p = _topic_key(version, buffer, view, p, end)
        partition_count = buffer[p]
        p += 1
        if partition_count >= 0x80:
            partition_count, p = read_uvarint(buffer, p - 1, end)
        for _ in range(partition_count - 1):
            index, leader_epoch, offset, last_epoch, log_start, limit = unpack(buffer, p)
            p += 32
            p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
            if p > end:
                raise DecodeError("a partition reaches past the end of the request")
            partitions.append(
                FetchPartitionRequest(
                    key, index, leader_epoch, offset, last_epoch, log_start, limit
                )
            )
        p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
        if p > end:
            raise DecodeError("a topic reaches past the end of the request")
    forgotten: list[tuple[bytes, int]] = []
    topic_count = buffer[p]
    p += 1
    if topic_count >= 0x80:
        topic_count, p = read_uvarint(buffer, p - 1, end)
    for _ in range(topic_count - 1):
        key, p = _topic_key(version, buffer, view, p, end)
        count = buffer[p]
        p += 1
        if count >= 0x80:
            count, p = read_uvarint(buffer, p - 1, end)
        for _ in range(count - 1):
            forgotten.append((key, _I32.unpack_from(buffer, p)[0]))
            p += 4
            if p > end:
                raise DecodeError("a forgotten partition reaches past the end of the request")
        p = skip_tags(buffer, p, end)
        if p > end:
            raise DecodeError("a forgotten topic reaches past the end of the request")
    if p > end:
        raise DecodeError("the Fetch request ends too early")
    if version >= 15:
        replica_id = _replica_id(buffer, p, end)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        epoch,
        partitions,
        forgotten,
    )


def _replica_id(buffer: bytearray, p: int, end: int) -> int:
    """Return the id of the follower that fetches: it stands in a tagged field (KIP-903)."""
    length, p = read_uvarint(buffer, p, end)  # the rack
    p += max(length - 1, 0)
    if p >= end:
        raise DecodeError("the Fetch request ends too early")
    if buffer[p] == 0:
        return -1
    count, p = read_uvarint(buffer, p, end)
    for _ in range(count):
        tag, p = read_uvarint(buffer, p, end)
        size, p = read_uvarint(buffer, p, end)
        if p + size > end:
            raise DecodeError("a tagged field reaches past the end of the request")
        if tag == _REPLICA_STATE and size >= 4:
            return int(_I32.unpack_from(buffer, p)[0])
        p += size
    return -1


def _topic_key(
    version: int, buffer: bytearray, view: memoryview, p: int, end: int
) -> tuple[bytes, int]:
    if version >= FIRST_TOPIC_ID:
        return bytes(view[p : p + 16]), p + 16
    length, p = read_uvarint(buffer, p, end)
    if length == 0:
        raise DecodeError("a topic name is null")
    return bytes(view[p : p + length - 1]), p + length - 1


def _decode_legacy(
    version: int, buffer: bytearray, view: memoryview, p: int, end: int
) -> FetchRequest:
    session_id, epoch = 0, -1
    if version >= 7:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = _FIXED[
            7
        ].unpack_from(buffer, p)
        p += 25
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _FIXED[4].unpack_from(buffer, p)
        p += 17
    layout = _PARTITION[9 if version >= 9 else 5 if version >= 5 else 4]
    partitions: list[FetchPartitionRequest] = []
    topic_count = _I32.unpack_from(buffer, p)[0]
    p += 4
    for _ in range(topic_count):
        key, p = _legacy_key(buffer, view, p)
        partition_count = _I32.unpack_from(buffer, p)[0]
        p += 4
        for _ in range(partition_count):
            fields = layout.unpack_from(buffer, p)
            p += layout.size
            if p > end:
                raise DecodeError("a partition reaches past the end of the request")
            if version >= 9:
                index, leader_epoch, offset, log_start, limit = fields
            elif version >= 5:
                index, offset, log_start, limit = fields
                leader_epoch = -1
            else:
                index, offset, limit = fields
                leader_epoch = log_start = -1
            partitions.append(
                FetchPartitionRequest(key, index, leader_epoch, offset, -1, log_start, limit)
            )
        if p > end:
            raise DecodeError("a topic reaches past the end of the request")
    forgotten: list[tuple[bytes, int]] = []
    if version >= 7:
        topic_count = _I32.unpack_from(buffer, p)[0]
        p += 4
        for _ in range(topic_count):
            key, p = _legacy_key(buffer, view, p)
            count = _I32.unpack_from(buffer, p)[0]
            p += 4
            for _ in range(count):
                forgotten.append((key, _I32.unpack_from(buffer, p)[0]))
                p += 4
                if p > end:
                    raise DecodeError("a forgotten partition reaches past the end of the request")
            if p > end:
                raise DecodeError("a forgotten topic reaches past the end of the request")
    if p > end:
        raise DecodeError("the Fetch request ends too early")
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        epoch,
        partitions,
        forgotten,
    )


def _legacy_key(buffer: bytearray, view: memoryview, p: int) -> tuple[bytes, int]:
    length = _I16.unpack_from(buffer, p)[0]
    if length < 0:
        raise DecodeError("a topic name is null")
    p += 2
    return bytes(view[p : p + length]), p + length


_HEAD_FLEXIBLE = Struct(">iibihi")  # size, correlation id, tags, throttle, error, session id
_HEAD_V7 = Struct(">iiihii")  # size, correlation id, throttle, error, session id, topics
_HEAD_V4 = Struct(">iiii")  # size, correlation id, throttle, topics
_DATA = Struct(">ihqqq")
_DATA_V4 = Struct(">ihqq")
_NO_ABORTED = b"\x01\xff\xff\xff\xff"


def encode_fetch_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    data: list[PartitionData],
    read: list[Records],
    throttle_ms: int = 0,
) -> list[bytes | FileSlice]:
    """Return the whole response frame as parts to be sent one after the other.

    `read` has the records of each partition of `data`: in memory, or where they lie in a file.
    """
    parts: list[bytes | FileSlice] = []
    pending: list[bytes] = []
    size = 0
    topics = 0
    position = 0
    count = len(data)
    flexible = version >= FIRST_FLEXIBLE
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
            elif isinstance(records, bytes):
                pending.append(_encode_partition(version, item, len(records)))
                pending.append(records)
            else:
                length = records.length
                pending.append(_encode_partition(version, item, length))
                head = b"".join(pending)
                size += len(head) + length
                parts.append(head)
                parts.append(records)
                pending = []
            if flexible:
                pending.append(_partition_tags(item))
        if flexible:
            pending.append(b"\0")
        position = stop
    if flexible:
        pending.append(b"\0")
    tail = b"".join(pending)
    size += len(tail)
    head = _encode_head(version, correlation_id, throttle_ms, error_code, session_id, topics, size)
    if parts:
        parts[0] = head + parts[0]  # type: ignore[operator]
        parts.append(tail)
    else:
        parts.append(head + tail)
    return parts


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
    _, index, code, high_watermark, last_stable_offset, log_start_offset, _, _ = item
    if version >= FIRST_FLEXIBLE:
        return (
            _DATA.pack(index, code, high_watermark, last_stable_offset, log_start_offset)
            + _NO_ABORTED
            + uvarint(length + 1)
        )
    if version >= 5:
        fixed = _DATA.pack(index, code, high_watermark, last_stable_offset, log_start_offset)
    else:
        fixed = _DATA_V4.pack(index, code, high_watermark, last_stable_offset)
    preferred = b"\xff\xff\xff\xff" if version >= 11 else b""
    return fixed + b"\0\0\0\0" + preferred + _I32.pack(length)


def _partition_tags(item: PartitionData) -> bytes:
    if item.diverging is None:
        return b"\0"
    epoch, end_offset = item.diverging
    body = Struct(">iqb").pack(epoch, end_offset, 0)
    return b"\x01\x00" + uvarint(len(body)) + body
