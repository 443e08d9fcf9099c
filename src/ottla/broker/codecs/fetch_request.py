"""Fetch requests on the wire, versions 4 to 18, decoded by hand because it is the hot path.

Requests that name very many partitions raise LargeRequest: they are decoded by their schema, and
answered in slices.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from ottla.broker.codecs.large_request import MOST_PARTITIONS, LargeRequest, large_request
from ottla.wire.primitives import DecodeError, read_uvarint, skip_tags

FIRST_FLEXIBLE: Final = 12
FIRST_TOPIC_ID: Final = 13

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_REPLICA_BYTES: Final = 12
_unpack_replica: Final = Struct(">iq").unpack_from
_REPLICA_STATE: Final = 1  # a tagged field: replica id and epoch
_unpack_replica_state: Final = Struct(">BBBiq").unpack_from
"""Returns the only tagged field of a follower's request: count, tag, size, id and epoch."""
_ONLY_REPLICA_BYTES: Final = 13


class FetchPartitionRequest:
    """One partition of a fetch; `key` is its topic's name in UTF-8, or id from version 13."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition_index",
    )

    def __init__(
        self,
        key: bytes,
        partition_index: int,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
        max_bytes: int,
    ) -> None:
        self.key = key
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.max_bytes = max_bytes


class FetchRequest:
    """What a consumer or follower asks for."""

    __slots__ = (
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partitions",
        "rack",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
    )

    def __init__(
        self,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        session_id: int,
        session_epoch: int,
        partitions: list[FetchPartitionRequest],
        forgotten: list[tuple[bytes, int]],
        replica_epoch: int = -1,
        rack: bytes = b"",
    ) -> None:
        self.replica_id = replica_id
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.partitions = partitions
        self.forgotten = forgotten
        self.replica_epoch = replica_epoch
        self.rack = rack
        """Where the consumer is, for version 11 and later (KIP-392)."""


_FIXED: Final = {  # version: struct of the fields before the topics
    4: Struct(">iiiib"),
    7: Struct(">iiiibii"),
    15: Struct(">iiibii"),
}
_PARTITION: Final = {  # version: struct of a partition
    4: Struct(">iqi"),
    5: Struct(">iqqi"),
    9: Struct(">iiqqi"),
    12: Struct(">iiqiqi"),
}
_unpack_fixed: Final = _FIXED[15].unpack_from
_ONE_REST_BYTES: Final = 38
_unpack_one_rest: Final = Struct(">16sBiiqiqiBBBBB").unpack_from
"""Returns the id of the only topic (if topics have names, whatever is there), and what follows its
key: the count of partitions, the partition, its tags, tags of the topic, the count of forgotten
topics, the length of the rack, tags of the request."""


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
    replica_id = replica_epoch = -1
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = _unpack_fixed(buffer, p)
        p += 21
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = _FIXED[
            7
        ].unpack_from(buffer, p)
        p += 25
    topic_count = buffer[p]
    if topic_count == 2:  # one topic, and probably one partition: nearly always
        key, q = b"", p + 17
        if version < FIRST_TOPIC_ID:
            key, q = _topic_key(version, buffer, view, p + 1, end)
        if q + _ONE_REST_BYTES <= end:
            (
                topic_id, count, index, leader_epoch, offset, last_epoch, log_start, limit,
                tags, topic_tags, forgotten_count, rack_length, more_tags,
            ) = _unpack_one_rest(buffer, q - 16)  # fmt: skip
            if version >= FIRST_TOPIC_ID:
                key = topic_id
            if count == 2 and not (tags or topic_tags) and forgotten_count == 1 >= rack_length:
                if more_tags and version >= 15:
                    replica_id, replica_epoch = _replica(buffer, q + _ONE_REST_BYTES - 1, end)
                only = FetchPartitionRequest(
                    key, index, leader_epoch, offset, last_epoch, log_start, limit
                )
                return FetchRequest(
                    replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch,
                    [only], [], replica_epoch,
                )  # fmt: skip
    unpack = _PARTITION[12].unpack_from
    partitions: list[FetchPartitionRequest] = []
    p += 1
    if topic_count >= 0x80:
        topic_count, p = read_uvarint(buffer, p - 1, end)
        if topic_count > MOST_PARTITIONS:
            raise large_request(topic_count, 3, end - p)
    for _ in range(topic_count - 1):
        key, p = _topic_key(version, buffer, view, p, end)
        partition_count = buffer[p]
        p += 1
        if partition_count >= 0x80:
            partition_count, p = read_uvarint(buffer, p - 1, end)
            if partition_count > MOST_PARTITIONS:
                raise large_request(partition_count, 33, end - p)
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
        if len(partitions) > MOST_PARTITIONS:
            raise LargeRequest
    forgotten: list[tuple[bytes, int]] = []
    topic_count = buffer[p]
    p += 1
    if topic_count >= 0x80:
        topic_count, p = read_uvarint(buffer, p - 1, end)
        if topic_count > MOST_PARTITIONS:
            raise large_request(topic_count, 3, end - p)
    for _ in range(topic_count - 1):
        key, p = _topic_key(version, buffer, view, p, end)
        count = buffer[p]
        p += 1
        if count >= 0x80:
            count, p = read_uvarint(buffer, p - 1, end)
            if count > MOST_PARTITIONS:
                raise large_request(count, 4, end - p)
        for _ in range(count - 1):
            forgotten.append((key, _I32.unpack_from(buffer, p)[0]))
            p += 4
            if p > end:
                raise DecodeError("a forgotten partition reaches past the end of the request")
        p = skip_tags(buffer, p, end)
        if p > end:
            raise DecodeError("a forgotten topic reaches past the end of the request")
        if len(forgotten) > MOST_PARTITIONS:
            raise LargeRequest
    if p > end:
        raise DecodeError("the Fetch request ends too early")
    length = buffer[p]
    p += 1
    if length >= 0x80:
        length, p = read_uvarint(buffer, p - 1, end)
    rack = b""
    if length > 1:
        rack = bytes(view[p : p + length - 1])
        p += length - 1
    if p >= end:
        raise DecodeError("the Fetch request ends too early")
    if version >= 15:
        replica_id, replica_epoch = _replica(buffer, p, end)
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
        replica_epoch,
        rack,
    )


def _replica(buffer: bytearray, p: int, end: int) -> tuple[int, int]:
    """Return the id and the epoch of the follower that fetches, from a tagged field (KIP-903)."""
    if buffer[p] == 0:
        return -1, -1
    if p + 3 + _REPLICA_BYTES < end:
        count, tag, size, replica_id, replica_epoch = _unpack_replica_state(buffer, p)
        if count == 1 and tag == _REPLICA_STATE and size == _ONLY_REPLICA_BYTES:
            return replica_id, replica_epoch
    count, p = read_uvarint(buffer, p, end)
    for _ in range(count):
        tag, p = read_uvarint(buffer, p, end)
        size, p = read_uvarint(buffer, p, end)
        if p + size > end:
            raise DecodeError("a tagged field reaches past the end of the request")
        if tag == _REPLICA_STATE and size >= _REPLICA_BYTES:
            replica_id, replica_epoch = _unpack_replica(buffer, p)
            return replica_id, replica_epoch
        p += size
    return -1, -1


def _topic_key(
    version: int, buffer: bytearray, view: memoryview, p: int, end: int
) -> tuple[bytes, int]:
    if version >= FIRST_TOPIC_ID:
        return bytes(view[p : p + 16]), p + 16
    length = buffer[p]
    p += 1
    if length >= 0x80:
        length, p = read_uvarint(buffer, p - 1, end)
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
    if topic_count > MOST_PARTITIONS:
        raise large_request(topic_count, 6, end - p)
    for _ in range(topic_count):
        key, p = _legacy_key(buffer, view, p)
        partition_count = _I32.unpack_from(buffer, p)[0]
        p += 4
        if partition_count > MOST_PARTITIONS:
            raise large_request(partition_count, layout.size, end - p)
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
        if len(partitions) > MOST_PARTITIONS:
            raise LargeRequest
    forgotten: list[tuple[bytes, int]] = []
    if version >= 7:
        topic_count = _I32.unpack_from(buffer, p)[0]
        p += 4
        if topic_count > MOST_PARTITIONS:
            raise large_request(topic_count, 6, end - p)
        for _ in range(topic_count):
            key, p = _legacy_key(buffer, view, p)
            count = _I32.unpack_from(buffer, p)[0]
            p += 4
            if count > MOST_PARTITIONS:
                raise large_request(count, 4, end - p)
            for _ in range(count):
                forgotten.append((key, _I32.unpack_from(buffer, p)[0]))
                p += 4
                if p > end:
                    raise DecodeError("a forgotten partition reaches past the end of the request")
            if p > end:
                raise DecodeError("a forgotten topic reaches past the end of the request")
            if len(forgotten) > MOST_PARTITIONS:
                raise LargeRequest
    rack = b""
    if version >= 11:
        length = _I16.unpack_from(buffer, p)[0]
        p += 2
        if length > 0:
            rack = bytes(view[p : p + length])
            p += length
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
        rack=rack,
    )


def _legacy_key(buffer: bytearray, view: memoryview, p: int) -> tuple[bytes, int]:
    length = _I16.unpack_from(buffer, p)[0]
    if length < 0:
        raise DecodeError("a topic name is null")
    p += 2
    return bytes(view[p : p + length]), p + length
