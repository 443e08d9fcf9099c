"""Produce on the wire, versions 3 to 13, written by hand because it is the hot path.

Requests are read in place: record bytes stay where they were received and are named by
their bounds. A frame that does not add up raises DecodeError before anything is appended.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.wire.primitives import DecodeError, read_uvarint, skip_tags, uvarint

FIRST_FLEXIBLE = 9
FIRST_TOPIC_ID = 13

_I16 = Struct(">h")
_I32 = Struct(">i")
_ACKS = Struct(">hi")


class ProducePartition(NamedTuple):
    """The records of one partition: bounds in the frame, `start` is -1 when they are null."""

    partition_index: int
    start: int
    end: int


class ProduceTopic(NamedTuple):
    """A topic by its raw key: name in UTF-8, or the 16 bytes of its id from version 13."""

    key: bytes
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    """What a producer asks for."""

    transactional_id: bytes | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class PartitionResult(NamedTuple):
    """What became of one partition's records."""

    partition_index: int
    error: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None


def decode_produce(
    version: int, buffer: bytearray, view: memoryview, start: int, end: int
) -> ProduceRequest:
    """The request whose body is [start, end)."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(version, buffer, view, start, end)
        return _decode_legacy(buffer, view, start, end)
    except (IndexError, error) as cause:
        raise DecodeError("the Produce request ends too early") from cause


def _decode_flexible(
    version: int, buffer: bytearray, view: memoryview, p: int, end: int
) -> ProduceRequest:
    transactional_id = None
    length = buffer[p]
    p += 1
    if length:
        if length >= 0x80:
            length, p = read_uvarint(buffer, p - 1, end)
        length -= 1
        transactional_id = bytes(view[p : p + length])
        p += length
    acks, timeout_ms = _ACKS.unpack_from(buffer, p)
    topic_count = buffer[p + 6]
    p += 7
    if topic_count >= 0x80:
        topic_count, p = read_uvarint(buffer, p - 1, end)
    topics = []
    for _ in range(topic_count - 1):
        if version >= FIRST_TOPIC_ID:
            key = bytes(view[p : p + 16])
            p += 16
        else:
            length = buffer[p]
            p += 1
            if length >= 0x80:
                length, p = read_uvarint(buffer, p - 1, end)
            if length == 0:
                raise DecodeError("a topic name is null")
            key = bytes(view[p : p + length - 1])
            p += length - 1
        partition_count = buffer[p]
        p += 1
        if partition_count >= 0x80:
            partition_count, p = read_uvarint(buffer, p - 1, end)
        partitions = []
        for _ in range(partition_count - 1):
            index = _I32.unpack_from(buffer, p)[0]
            length = buffer[p + 4]
            p += 5
            if length >= 0x80:
                length, p = read_uvarint(buffer, p - 1, end)
            if length:
                stop = p + length - 1
                if stop > end:
                    raise DecodeError("records reach past the end of the request")
                partitions.append(ProducePartition(index, p, stop))
                p = stop
            else:
                partitions.append(ProducePartition(index, -1, -1))
            p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
            if p > end:
                raise DecodeError("a partition reaches past the end of the request")
        p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
        topics.append(ProduceTopic(key, partitions))
        if p > end:
            raise DecodeError("a topic reaches past the end of the request")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_legacy(buffer: bytearray, view: memoryview, p: int, end: int) -> ProduceRequest:
    transactional_id = None
    length = _I16.unpack_from(buffer, p)[0]
    p += 2
    if length >= 0:
        transactional_id = bytes(view[p : p + length])
        p += length
    acks, timeout_ms = _ACKS.unpack_from(buffer, p)
    p += 6
    topic_count = _I32.unpack_from(buffer, p)[0]
    p += 4
    topics = []
    for _ in range(topic_count):
        length = _I16.unpack_from(buffer, p)[0]
        if length < 0:
            raise DecodeError("a topic name is null")
        p += 2
        key = bytes(view[p : p + length])
        p += length
        partition_count = _I32.unpack_from(buffer, p)[0]
        p += 4
        partitions = []
        for _ in range(partition_count):
            index = _I32.unpack_from(buffer, p)[0]
            length = _I32.unpack_from(buffer, p + 4)[0]
            p += 8
            if length >= 0:
                if p + length > end:
                    raise DecodeError("records reach past the end of the request")
                partitions.append(ProducePartition(index, p, p + length))
                p += length
            else:
                partitions.append(ProducePartition(index, -1, -1))
            if p > end:
                raise DecodeError("a partition reaches past the end of the request")
        topics.append(ProduceTopic(key, partitions))
        if p > end:
            raise DecodeError("a topic reaches past the end of the request")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


_HEAD_FLEXIBLE = Struct(">iib")
_ONE_PARTITION = Struct(">bihqqqbbbbib")  # count .. tags, topic tags, throttle, tags
_PARTITION_FLEXIBLE = Struct(">ihqqqb")
_HEAD_LEGACY = Struct(">iii")


def encode_produce_response(
    version: int, correlation_id: int, topics: list[tuple[bytes, list[PartitionResult]]]
) -> bytes:
    """The whole response frame, length included."""
    if version < FIRST_FLEXIBLE:
        return _encode_legacy(version, correlation_id, topics)
    if len(topics) == 1 and len(topics[0][1]) == 1:
        key, (result,) = topics[0]
        if result.message is None:
            return _encode_one(version, correlation_id, key, result)
    return _encode_flexible(version, correlation_id, topics)


def _encode_one(version: int, correlation_id: int, key: bytes, result: PartitionResult) -> bytes:
    """The common case: one partition, nothing to explain."""
    if version < FIRST_TOPIC_ID:
        key = uvarint(len(key) + 1) + key
    index, code, base_offset, append_time, log_start_offset, _ = result
    tail = _ONE_PARTITION.pack(
        2, index, code, base_offset, append_time, log_start_offset, 1, 0, 0, 0, 0, 0
    )
    return _HEAD_FLEXIBLE.pack(6 + len(key) + len(tail), correlation_id, 0) + b"\x02" + key + tail


def _encode_flexible(
    version: int, correlation_id: int, topics: list[tuple[bytes, list[PartitionResult]]]
) -> bytes:
    parts = [uvarint(len(topics) + 1)]
    for key, results in topics:
        if version < FIRST_TOPIC_ID:
            parts.append(uvarint(len(key) + 1))
        parts.append(key)
        parts.append(uvarint(len(results) + 1))
        for index, code, base_offset, append_time, log_start_offset, message in results:
            parts.append(
                _PARTITION_FLEXIBLE.pack(index, code, base_offset, append_time, log_start_offset, 1)
            )
            if message is None:
                parts.append(b"\0\0")
            else:
                text = message.encode()
                parts.append(uvarint(len(text) + 1) + text + b"\0")
        parts.append(b"\0")
    parts.append(b"\0\0\0\0\0")  # throttle time, tags
    body = b"".join(parts)
    return _HEAD_FLEXIBLE.pack(5 + len(body), correlation_id, 0) + body


def _encode_legacy(
    version: int, correlation_id: int, topics: list[tuple[bytes, list[PartitionResult]]]
) -> bytes:
    parts = []
    for key, results in topics:
        parts.append(_I16.pack(len(key)) + key + _I32.pack(len(results)))
        for index, code, base_offset, append_time, log_start_offset, message in results:
            fixed = _PARTITION_FLEXIBLE.pack(
                index, code, base_offset, append_time, log_start_offset, 0
            )
            parts.append(fixed[:30] if version >= 5 else fixed[:22])
            if version >= 8:
                text = message.encode() if message is not None else b""
                parts.append(b"\0\0\0\0" + _I16.pack(len(text) if message is not None else -1))
                parts.append(text)
    parts.append(b"\0\0\0\0")  # throttle time
    body = b"".join(parts)
    return _HEAD_LEGACY.pack(8 + len(body), correlation_id, len(topics)) + body


def refused(index: int, code: ErrorCode, message: str | None = None) -> PartitionResult:
    """The result of a partition that took nothing."""
    return PartitionResult(index, code, message=message)
