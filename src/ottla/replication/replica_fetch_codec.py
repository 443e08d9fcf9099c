"""Fetch as a follower sends it, version 17, written by hand because it is the hot path.

A request names only partitions whose position has changed (incremental sessions, KIP-227). A
response says where the records of each partition lie in the buffer that it was received into.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct, error
from typing import Final

from ottla.wire.primitives import DecodeError, read_uvarint, skip_tags, uvarint

FETCH_VERSION: Final = 17
_pack_head: Final = Struct(">iiibii").pack
"""Packs max wait, min bytes, max bytes, isolation, session id, session epoch."""
_pack_partition: Final = Struct(">iiqiqi").pack
_pack_replica: Final = Struct(">iq").pack
_pack_one: Final = Struct(">B16sBiiqiqiBBBBBBBiqB").pack
"""Packs what follows the head of a request that names one partition and forgets none."""
_TOP_BYTES: Final = 10
_unpack_top: Final = Struct(">ihi").unpack_from  # throttle time, error, session id
_ONE_REPLY_BYTES: Final = 63
_unpack_one_reply: Final = Struct(">ihiB16sBihqqqBi").unpack_from
"""Returns all of a response about one partition up to its records."""
_ANSWER_BYTES: Final = 30
_unpack_answer: Final = Struct(">ihqqq").unpack_from
"""Returns partition, error, high watermark, last stable offset, log start."""
_I32: Final = Struct(">i")
_DIVERGING: Final = Struct(">iq")
_NO_TAGS: Final = b"\x00"
_NONE: Final = uvarint(1)  # the length of an empty array
_ONLY_REPLICA_STATE: Final = b"\x01\x01\x0d"  # one tagged field: its tag, its size
_DIVERGING_TAG: Final = 0


class Position:
    """Where a follower goes on with a partition."""

    __slots__ = (
        "fetch_offset",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "partition_index",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: bytes,
        partition_index: int,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
    ) -> None:
        self.topic_id = topic_id
        self.partition_index = partition_index
        self.leader_epoch = leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset


class Fetched:
    """The answer for one partition; its records are [start, end) of the buffer.

    `diverging` is the leader's epoch up to the follower's, and where it ends, if the logs differ.
    """

    __slots__ = (
        "diverging",
        "end",
        "error",
        "high_watermark",
        "log_start_offset",
        "partition_index",
        "start",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: bytes,
        partition_index: int,
        error: int,
        high_watermark: int,
        log_start_offset: int,
        start: int,
        end: int,
        diverging: tuple[int, int] | None,
    ) -> None:
        self.topic_id = topic_id
        self.partition_index = partition_index
        self.error = error
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.start = start
        self.end = end
        self.diverging = diverging


class FetchReply:
    """A whole response."""

    __slots__ = ("error", "partitions", "session_id")

    def __init__(self, error: int, session_id: int, partitions: list[Fetched]) -> None:
        self.error = error
        self.session_id = session_id
        self.partitions = partitions


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
    session_id, epoch = session
    head = _pack_head(max_wait_ms, min_bytes, max_bytes, 0, session_id, epoch)
    if len(positions) == 1 and not forgotten:
        only = positions[0]
        return head + _pack_one(
            2, only.topic_id,
            2, only.partition_index, only.leader_epoch, only.fetch_offset,
            only.last_fetched_epoch, only.log_start_offset, partition_max_bytes,
            0, 0,  # tags of the partition and of the topic
            1, 1,  # nothing forgotten, no rack
            1, 1, 13, broker_id, broker_epoch,
            0,
        )  # fmt: skip
    parts = [head]
    _add_topics(parts, positions, partition_max_bytes)
    _add_forgotten(parts, forgotten)
    replica = _pack_replica(broker_id, broker_epoch)
    parts += (_NONE, _ONLY_REPLICA_STATE, replica, _NO_TAGS)  # no rack
    return b"".join(parts)


def _add_topics(
    parts: list[bytes], positions: Sequence[Position], partition_max_bytes: int
) -> None:
    topics: dict[bytes, list[Position]] = {}
    for position in positions:
        topics.setdefault(position.topic_id, []).append(position)
    parts.append(uvarint(len(topics) + 1))
    for topic_id, some in topics.items():
        parts += (topic_id, uvarint(len(some) + 1))
        for each in some:
            parts.append(
                _pack_partition(
                    each.partition_index,
                    each.leader_epoch,
                    each.fetch_offset,
                    each.last_fetched_epoch,
                    each.log_start_offset,
                    partition_max_bytes,
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
    if end - p > _ONE_REPLY_BYTES:
        (
            _, code, session_id, topic_count, topic_id, partition_count,
            index, partition_code, high_watermark, _, log_start, aborted, _,
        ) = _unpack_one_reply(buffer, p)  # fmt: skip
        if topic_count == partition_count == 2 and aborted <= 1:  # one partition: nearly always
            size, start = read_uvarint(buffer, p + _ONE_REPLY_BYTES, end)
            stop = start + max(size - 1, 0)
            if stop + 3 == end and buffer[stop] == buffer[stop + 1] == buffer[stop + 2] == 0:
                only = Fetched(
                    topic_id, index, partition_code, high_watermark, log_start, start, stop, None
                )
                return FetchReply(code, session_id, [only])
    _, code, session_id = _unpack_top(buffer, p)
    topic_count, p = read_uvarint(buffer, p + _TOP_BYTES, end)
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
    index, code, high_watermark, _, log_start_offset = _unpack_answer(buffer, p)
    p += _ANSWER_BYTES
    if buffer[p] <= 1:  # no aborted transactions: always, for a follower
        p += 1
    else:
        aborted, p = read_uvarint(buffer, p, end)
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
