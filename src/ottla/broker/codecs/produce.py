"""Produce on the wire, versions 3 to 13, written by hand because it is the hot path.

Requests are read in place: record bytes stay where they were received and are named by
their bounds. A frame that does not add up raises DecodeError before anything is appended.
Requests with very many partitions, or with one of them twice, raise LargeRequest: they are decoded
by their schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final, Protocol, TypeAlias

from ottla.broker.codecs.current_leaders import (
    BrokerEndpoint,
    Leader,
    endpoint_tags,
    leader_tags,
)
from ottla.broker.codecs.large_request import LargeRequest, large_request
from ottla.model.errors import NO_BAD_RECORDS, ErrorCode
from ottla.wire.primitives import DecodeError, read_uvarint, skip_tags, uvarint

FIRST_FLEXIBLE = 9
FIRST_WITH_LEADERS = 10
FIRST_TOPIC_ID = 13
_CURRENT_LEADER = 0  # a tagged field of a partition

_I16 = Struct(">h")
_I32 = Struct(">i")
_ACKS = Struct(">hi")
_unpack_named: dict[int, Callable[[bytearray, int], tuple[Any, ...]]] = {}
"""Functions that unpack a request with one topic and one partition, up to its records. The key is
the length of the topic's name, as it stands in the request."""
MOST_PARTITIONS: Final = 250
"""To write to a partition takes 7 µs, and 30 the first time."""
_MOST_NAMED = 0x7F
"""The largest length in `_unpack_named`: it takes one byte."""


# Plain tuples where a request makes one per partition: building them is most of the decoding.
ProducePartition: TypeAlias = tuple[int, int, int]
"""(partition index, start, end): bounds of the records in the frame, start is -1 when null."""

ProduceTopic: TypeAlias = tuple[bytes, list[ProducePartition]]
"""A topic by its raw key: name in UTF-8, or the 16 bytes of its id from version 13."""

ProduceRequest: TypeAlias = tuple[bytes | None, int, int, list[ProduceTopic], bytearray, memoryview]
"""(transactional id, acks, timeout in ms, topics, the frame's buffer and a view of it)."""


PartitionResult: TypeAlias = tuple[int, int, int, int, int, str | None, Mapping[int, str]]
"""(partition index, error code, base offset, log append time in ms, log start offset, message,
the records that were refused, by index, and why)."""


def decode_flexible(
    version: int, buffer: bytearray, view: memoryview, p: int, end: int
) -> ProduceRequest:
    """Return the request of a version from 9 on whose body is [p, end).

    IndexError and struct.error, like DecodeError, mean that it is not one.
    """
    if version < FIRST_TOPIC_ID:
        # One topic with a short name, one partition with less than 16 KiB: nearly always.
        length = buffer[p + 8]
        first = p + 15 + length
        if 0 < length <= _MOST_NAMED and first <= end:
            unpack = _unpack_named.get(length) or _unpack_one(length)
            id_length, acks, timeout_ms, topic_count, key, partition_count, index, low, high = (
                unpack(buffer, p)
            )
            last = first - 1 + (low & 0x7F | high << 7)
            if (
                not id_length
                and topic_count == 2 == partition_count
                and low >= 0x80 > high
                and last + 3 <= end
                and not (buffer[last] or buffer[last + 1] or buffer[last + 2])  # no tags
            ):
                return None, acks, timeout_ms, [(key, [(index, first, last)])], buffer, view
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
        if topic_count > MOST_PARTITIONS:
            raise large_request(topic_count, 3, end - p)
    room = MOST_PARTITIONS
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
            if partition_count > MOST_PARTITIONS:
                raise large_request(partition_count, 6, end - p)
        partitions = []
        for _ in range(partition_count - 1):
            index = _I32.unpack_from(buffer, p)[0]
            length = buffer[p + 4]
            p += 5
            if length >= 0x80:
                more = buffer[p]
                if more < 0x80:  # two bytes: nearly always
                    length = length & 0x7F | more << 7
                    p += 1
                else:
                    length, p = read_uvarint(buffer, p - 1, end)
            if length:
                stop = p + length - 1
                if stop > end:
                    raise DecodeError("records reach past the end of the request")
                partitions.append((index, p, stop))
                p = stop
            else:
                partitions.append((index, -1, -1))
            p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
            if p > end:
                raise DecodeError("a partition reaches past the end of the request")
        p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
        topics.append((key, partitions))
        if p > end:
            raise DecodeError("a topic reaches past the end of the request")
        room -= len(partitions)
        if room < 0:
            raise LargeRequest
    if p >= end:
        raise DecodeError("the Produce request ends too early")
    if buffer[p]:
        skip_tags(buffer, p, end)
    _refuse_repeated(topics)
    return transactional_id, acks, timeout_ms, topics, buffer, view


def _unpack_one(length: int) -> Callable[[bytearray, int], tuple[Any, ...]]:
    """Return the entry of `_unpack_named` for a length, made now.

    It reads the length of the transactional id (0 is none), acks, timeout, topics, name,
    partitions, index, and the length of the records in two bytes.
    """
    unpack = Struct(f">BhiBx{length - 1}sBiBB").unpack_from
    _unpack_named[length] = unpack
    return unpack


def decode_legacy(
    version: int, buffer: bytearray, view: memoryview, p: int, end: int
) -> ProduceRequest:
    """Return the request of a version before 9 whose body is [p, end)."""
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
    if topic_count > MOST_PARTITIONS:
        raise large_request(topic_count, 6, end - p)
    room = MOST_PARTITIONS
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
        if partition_count > MOST_PARTITIONS:
            raise large_request(partition_count, 8, end - p)
        partitions = []
        for _ in range(partition_count):
            index = _I32.unpack_from(buffer, p)[0]
            length = _I32.unpack_from(buffer, p + 4)[0]
            p += 8
            if length >= 0:
                if p + length > end:
                    raise DecodeError("records reach past the end of the request")
                partitions.append((index, p, p + length))
                p += length
            else:
                partitions.append((index, -1, -1))
            if p > end:
                raise DecodeError("a partition reaches past the end of the request")
        topics.append((key, partitions))
        if p > end:
            raise DecodeError("a topic reaches past the end of the request")
        room -= len(partitions)
        if room < 0:
            raise LargeRequest
    if p > end:
        raise DecodeError("the Produce request ends too early")
    _refuse_repeated(topics)
    return transactional_id, acks, timeout_ms, topics, buffer, view


def _refuse_repeated(topics: list[ProduceTopic]) -> None:
    """Raise LargeRequest if a topic or a partition is named more than once."""
    if len(topics) > 1 and len({key for key, _ in topics}) < len(topics):
        raise LargeRequest
    for _, partitions in topics:
        if len(partitions) > 1 and len({index for index, _, _ in partitions}) < len(partitions):
            raise LargeRequest


Answers: TypeAlias = list[tuple[bytes, list[PartitionResult]]]
"""Topic keys with the results of their partitions, in the order of the request."""

_HEAD_FLEXIBLE = Struct(">iib")
_ONE = "bihqqqbxxxix"  # count of partitions .. tags, topic tags, throttle, tags
_pack_by_id = Struct(">iixb16s" + _ONE).pack
_pack_named: dict[int, Callable[..., bytes]] = {}
"""By the length of the topic's name."""
_PARTITION = Struct(">ihqqq")
_HEAD_LEGACY = Struct(">iii")


def _named(length: int) -> Callable[..., bytes]:
    pack = _pack_named[length] = Struct(f">iixbb{length}s" + _ONE).pack
    return pack


class Leaders(Protocol):
    """The leaders of partitions that are led elsewhere."""

    def of(self, key: bytes, index: int) -> Leader | None: ...

    def endpoints(self) -> list[BrokerEndpoint]: ...


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Answers,
    throttle_ms: int = 0,
    leaders: Leaders | None = None,
) -> bytes:
    """Return the whole response frame, length included."""
    if version < FIRST_FLEXIBLE:
        return _encode_legacy(version, correlation_id, topics, throttle_ms)
    if leaders is None and len(topics) == 1:
        key, results = topics[0]
        if len(results) == 1:
            index, code, base_offset, append_time, log_start_offset, message, _ = results[0]
            if message is None and (length := len(key)) < 0x7F:
                # One partition, nothing to explain: nearly always, and one call for all of it.
                if version < FIRST_TOPIC_ID:
                    pack = _pack_named.get(length) or _named(length)
                    return pack(
                        47 + length, correlation_id, 2, length + 1, key, 2, index, code,
                        base_offset, append_time, log_start_offset, 1, throttle_ms,
                    )  # fmt: skip
                return _pack_by_id(
                    62, correlation_id, 2, key, 2, index, code,
                    base_offset, append_time, log_start_offset, 1, throttle_ms,
                )  # fmt: skip
    if version < FIRST_WITH_LEADERS:
        leaders = None
    return _encode_flexible(version, correlation_id, topics, throttle_ms, leaders)


def _encode_flexible(
    version: int, correlation_id: int, topics: Answers, throttle_ms: int, leaders: Leaders | None
) -> bytes:
    parts = [uvarint(len(topics) + 1)]
    for key, results in topics:
        if version < FIRST_TOPIC_ID:
            parts.append(uvarint(len(key) + 1))
        parts.append(key)
        parts.append(uvarint(len(results) + 1))
        for index, code, base_offset, append_time, log_start_offset, message, bad in results:
            parts.append(_PARTITION.pack(index, code, base_offset, append_time, log_start_offset))
            parts.append(uvarint(len(bad) + 1))
            for number, problem in bad.items():
                parts += (_I32.pack(number), _compact(problem), b"\0")  # no tags
            leader = None if leaders is None else leaders.of(key, index)
            tags = leader_tags(_CURRENT_LEADER, leader)
            parts += (b"\0" if message is None else _compact(message), tags)
        parts.append(b"\0")
    tags = endpoint_tags(() if leaders is None else leaders.endpoints())
    parts.append(_I32.pack(throttle_ms) + tags)
    body = b"".join(parts)
    return _HEAD_FLEXIBLE.pack(5 + len(body), correlation_id, 0) + body


def _encode_legacy(version: int, correlation_id: int, topics: Answers, throttle_ms: int) -> bytes:
    parts = []
    for key, results in topics:
        parts.append(_I16.pack(len(key)) + key + _I32.pack(len(results)))
        for index, code, base_offset, append_time, log_start_offset, message, bad in results:
            fixed = _PARTITION.pack(index, code, base_offset, append_time, log_start_offset)
            parts.append(fixed if version >= 5 else fixed[:22])
            if version >= 8:
                parts.append(_I32.pack(len(bad)))
                for number, problem in bad.items():
                    parts.append(_I32.pack(number) + _short(problem))
                parts.append(b"\xff\xff" if message is None else _short(message))
    parts.append(_I32.pack(throttle_ms))
    body = b"".join(parts)
    return _HEAD_LEGACY.pack(8 + len(body), correlation_id, len(topics)) + body


def _compact(text: str) -> bytes:
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def _short(text: str) -> bytes:
    encoded = text.encode()
    return _I16.pack(len(encoded)) + encoded


def refused(
    index: int,
    code: ErrorCode,
    message: str | None = None,
    bad_records: Mapping[int, str] = NO_BAD_RECORDS,
) -> PartitionResult:
    """Return the result of a partition that took nothing."""
    return index, code, -1, -1, -1, message, bad_records
