"""Fetch as a follower sends it, version 17, written by hand because it is the hot path.

A request names only partitions whose position has changed (incremental sessions, KIP-227). A
response says where the records of each partition lie in the buffer that it was received into.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from ottla.wire.primitives import DecodeError, read_uvarint, skip_tags, uvarint

FETCH_VERSION: Final = 17
_HEAD = Struct(">iiibii")  # max wait, min bytes, max bytes, isolation, session id, session epoch
_PARTITION = Struct(">iiqiqi")
_REPLICA = Struct(">iq")
_TOP = Struct(">ihi")  # throttle time, error, session id
_ANSWER = Struct(">ihqqq")  # partition, error, high watermark, last stable offset, log start
_I32 = Struct(">i")
_DIVERGING = Struct(">iq")
_NO_TAGS = b"\x00"
_ONE = uvarint(2)  # the length of an array with one element
_NONE = uvarint(1)
_ONLY_REPLICA_STATE = b"\x01\x01\x0d"  # one tagged field: its tag, its size
_DIVERGING_TAG = 0


class Position(NamedTuple):
    """Where a follower goes on with a partition."""

    topic_id: bytes
    partition_index: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Fetched(NamedTuple):
    """The answer for one partition; its records are [start, end) of the buffer."""

    topic_id: bytes
    partition_index: int
    error: int
    high_watermark: int
    log_start_offset: int
    start: int
    end: int
    diverging: tuple[int, int] | None
    """The leader's epoch up to the follower's, and where it ends, if the logs differ."""


class FetchReply(NamedTuple):
    """A whole response."""

    error: int
    session_id: int
    partitions: list[Fetched]


def encode_request(
    broker_id: int,
    broker_epoch: int,
    limits: tuple[int, int, int, int],
    session: tuple[int, int],
    positions: Sequence[Position],
    forgotten: Collection[tuple[bytes, int]],
) -> bytes:
    """Return the body of a request.

    `limits` are max wait, min bytes, max bytes, and max bytes of a partition.
    """
    max_wait_ms, min_bytes, max_bytes, partition_max_bytes = limits
    parts = [_HEAD.pack(max_wait_ms, min_bytes, max_bytes, 0, *session)]
    _add_topics(parts, positions, partition_max_bytes)
    _add_forgotten(parts, forgotten)
    replica = _REPLICA.pack(broker_id, broker_epoch)
    parts += (_NONE, _ONLY_REPLICA_STATE, replica, _NO_TAGS)  # no rack
    return b"".join(parts)


def _add_topics(
    parts: list[bytes], positions: Sequence[Position], partition_max_bytes: int
) -> None:
    if len(positions) == 1:
        topic_id, index, leader_epoch, offset, last_epoch, log_start = positions[0]
        partition = _PARTITION.pack(
            index, leader_epoch, offset, last_epoch, log_start, partition_max_bytes
        )
        parts += (_ONE, topic_id, _ONE, partition, _NO_TAGS, _NO_TAGS)
        return
    topics: dict[bytes, list[Position]] = {}
    for position in positions:
        topics.setdefault(position.topic_id, []).append(position)
    parts.append(uvarint(len(topics) + 1))
    for topic_id, some in topics.items():
        parts += (topic_id, uvarint(len(some) + 1))
        for _, index, leader_epoch, offset, last_epoch, log_start in some:
            parts.append(
                _PARTITION.pack(
                    index, leader_epoch, offset, last_epoch, log_start, partition_max_bytes
                )
            )
            parts.append(_NO_TAGS)
        parts.append(_NO_TAGS)


def _add_forgotten(parts: list[bytes], forgotten: Collection[tuple[bytes, int]]) -> None:
    if not forgotten:
        parts.append(_NONE)
        return
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in forgotten:
        topics.setdefault(topic_id, []).append(index)
    parts.append(uvarint(len(topics) + 1))
    for topic_id, indexes in topics.items():
        parts += (topic_id, uvarint(len(indexes) + 1))
        parts += (_I32.pack(index) for index in indexes)
        parts.append(_NO_TAGS)


def decode_reply(buffer: bytearray, p: int, end: int) -> FetchReply:
    """Return the response in [p, end). Raise DecodeError if it is not one."""
    try:
        return _decode(buffer, p, end)
    except (IndexError, error) as cause:
        raise DecodeError("the Fetch response ends too early") from cause


def _decode(buffer: bytearray, p: int, end: int) -> FetchReply:
    _, code, session_id = _TOP.unpack_from(buffer, p)
    topic_count, p = read_uvarint(buffer, p + _TOP.size, end)
    partitions: list[Fetched] = []
    for _ in range(topic_count - 1):
        topic_id = bytes(buffer[p : p + 16])
        partition_count, p = read_uvarint(buffer, p + 16, end)
        for _ in range(partition_count - 1):
            fetched, p = _partition(buffer, p, end, topic_id)
            partitions.append(fetched)
        p = skip_tags(buffer, p, end)
    if skip_tags(buffer, p, end) > end:
        raise DecodeError("the Fetch response ends too early")
    return FetchReply(code, session_id, partitions)


def _partition(buffer: bytearray, p: int, end: int, topic_id: bytes) -> tuple[Fetched, int]:
    index, code, high_watermark, _, log_start_offset = _ANSWER.unpack_from(buffer, p)
    aborted, p = read_uvarint(buffer, p + _ANSWER.size, end)
    for _ in range(aborted - 1):
        p = skip_tags(buffer, p + 16, end)
    size, p = read_uvarint(buffer, p + 4, end)  # after the preferred read replica
    start = p
    p += max(size - 1, 0)
    if p >= end:
        raise DecodeError("records reach past the end of the response")
    stop, diverging = p, None
    if buffer[p] == 0:
        p += 1
    else:
        diverging = _diverging(buffer, p, end)
        p = skip_tags(buffer, p, end)
    return Fetched(
        topic_id, index, code, high_watermark, log_start_offset, start, stop, diverging
    ), p


def _diverging(buffer: bytearray, p: int, end: int) -> tuple[int, int] | None:
    count, p = read_uvarint(buffer, p, end)
    for _ in range(count):
        tag, p = read_uvarint(buffer, p, end)
        size, p = read_uvarint(buffer, p, end)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = _DIVERGING.unpack_from(buffer, p)
            return epoch, end_offset
        p += size
    return None
