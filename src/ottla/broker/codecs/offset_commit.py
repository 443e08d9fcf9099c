"""The wire format of OffsetCommit, versions 8 and 9, decoded by hand because it is a hot path.

A malformed frame raises DecodeError before anything is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import TypeAlias

from ottla.coordinator.groups.offset_commit import PartitionCode, PartitionCommit
from ottla.wire.primitives import DecodeError, read_uvarint, skip_tags, uvarint

_I32 = Struct(">i")
_PARTITION = Struct(">iqiB")  # index, offset, leader epoch, first byte of the metadata's length
_HEAD = Struct(">iiBi")  # size, correlation id, no tagged fields, throttle time
_RESULT = Struct(">ihB")  # index, error code, no tagged fields
_ONE_HEAD = Struct(">iiBiBB")  # _HEAD, then one topic and the length of its name
_ONE_RESULT = Struct(
    ">BihBBB"
)  # one partition: index, error code, and the tagged fields of all levels
_END = b"\0"

TopicCommits: TypeAlias = tuple[str | bytes, list[PartitionCommit]]
"""A topic by its name, or from version 10 by its id, and what is committed for its partitions."""

CommitRequest: TypeAlias = tuple[str, int, str, str | None, int, list[TopicCommits]]
"""Group id, generation id, member id, group instance id, retention in ms, topics."""

NO_RETENTION = -1
"""The retention of a request that has none: from version 5 on."""


def decode_commit(
    version: int, buffer: bytearray, view: memoryview, p: int, end: int
) -> CommitRequest:
    """Return the request whose body is [p, end). Raise DecodeError if it is malformed."""
    try:
        # Nearly all lengths are below 128. They are read inline, because a call would cost more.
        stop = p + buffer[p]
        if 0 < stop - p < 0x80 and stop < end:
            group_id, p = buffer[p + 1 : stop].decode(), stop
        else:
            group_id, p = _string(buffer, view, p, end)
        generation_id = _I32.unpack_from(buffer, p)[0]
        p += 4
        stop = p + buffer[p]
        if 0 < stop - p < 0x80 and stop < end:
            member_id, p = buffer[p + 1 : stop].decode(), stop
        else:
            member_id, p = _string(buffer, view, p, end)
        instance_id = None
        if buffer[p]:
            instance_id, p = _string(buffer, view, p, end)
        else:
            p += 1
        topic_count = buffer[p] - 1
        if 0 <= topic_count < 0x7F:
            p += 1
        else:
            topic_count, p = _count(buffer, p, end)
        topics: list[TopicCommits] = []
        for _ in range(topic_count):
            stop = p + buffer[p]
            if 0 < stop - p < 0x80 and stop < end:
                name, p = buffer[p + 1 : stop].decode(), stop
            else:
                name, p = _string(buffer, view, p, end)
            partition_count = buffer[p] - 1
            if 0 <= partition_count < 0x7F:
                p += 1
            else:
                partition_count, p = _count(buffer, p, end)
            partitions = []
            for _ in range(partition_count):
                index, offset, leader_epoch, length = _PARTITION.unpack_from(buffer, p)
                p += 17
                metadata = ""
                if length > 1:
                    metadata, p = _string(buffer, view, p - 1, end)
                partitions.append((index, offset, leader_epoch, metadata))
                p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
                if p > end:
                    raise DecodeError("a partition reaches past the end of the request")
            p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
            topics.append((name, partitions))
        p = p + 1 if buffer[p] == 0 else skip_tags(buffer, p, end)
        if p > end:
            raise DecodeError("the OffsetCommit request ends too early")
        return group_id, generation_id, member_id, instance_id, NO_RETENTION, topics
    except (IndexError, error, UnicodeDecodeError) as cause:
        raise DecodeError("the OffsetCommit request is malformed") from cause


def _string(buffer: bytearray, view: memoryview, p: int, end: int) -> tuple[str, int]:
    length = buffer[p]
    p += 1
    if length >= 0x80:
        length, p = read_uvarint(buffer, p - 1, end)
    if length == 0:
        raise DecodeError("a string is null that may not be")
    stop = p + length - 1
    if stop > end:
        raise DecodeError("a string reaches past the end of the request")
    return str(view[p:stop], "utf-8"), stop


def _count(buffer: bytearray, p: int, end: int) -> tuple[int, int]:
    length = buffer[p]
    p += 1
    if length >= 0x80:
        length, p = read_uvarint(buffer, p - 1, end)
    if length == 0:
        raise DecodeError("an array is null that may not be")
    return length - 1, p


def encode_commit_response(
    correlation_id: int, names: Sequence[str], topics: list[list[PartitionCode]]
) -> bytes:
    """Return the response as a whole frame."""
    if len(names) == 1 and len(topics[0]) == 1 and len(names[0]) < 0x20:
        # Nearly every request is for one partition of a topic with a short name.
        only = names[0].encode()
        index, code = topics[0][0]
        head = _ONE_HEAD.pack(len(only) + 21, correlation_id, 0, 0, 2, len(only) + 1)
        return head + only + _ONE_RESULT.pack(2, index, code, 0, 0, 0)
    parts = [b"", uvarint(len(names) + 1)]
    for name, results in zip(names, topics, strict=True):
        encoded = name.encode()
        parts.append(uvarint(len(encoded) + 1))
        parts.append(encoded)
        parts.append(uvarint(len(results) + 1))
        for index, code in results:
            parts.append(_RESULT.pack(index, code, 0))
        parts.append(_END)
    parts.append(_END)
    parts[0] = _HEAD.pack(9 + sum(map(len, parts)), correlation_id, 0, 0)
    return b"".join(parts)
