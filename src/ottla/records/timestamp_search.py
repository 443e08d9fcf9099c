"""Search a batch for its first record with a timestamp at or after a given one.

Only lengths, timestamps and offsets are read, up to the record that is found. `search` is a task
for a helper process, for batches that are compressed or have many records.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ottla.ports import Buffer
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME, CorruptBatch, parse_header
from ottla.records.compression import DECOMPRESSED_LIMIT, decompress
from ottla.records.structure import UNLIMITED, OutOfSteps
from ottla.records.varint import read_int, read_long

TASK: Final = "ottla.records.timestamp_search:search"

_HEAD: Final = Struct(">qq")  # timestamp, first offset
_FOUND: Final = Struct(">cqq")  # kind, offset, timestamp
_NOTHING: Final = b"N"
_DAMAGED: Final = b"D"


class FoundRecord(NamedTuple):
    """The offset and the timestamp of a record."""

    offset: int
    timestamp: int


def first_record_at(
    buffer: Buffer,
    start: int,
    timestamp_ms: int,
    first_offset: int,
    limit: int = DECOMPRESSED_LIMIT,
    steps: int = UNLIMITED,
) -> FoundRecord | None:
    """Return the first record of the v2 batch at `start`, from an offset on, at this time or later.

    Raise CorruptBatch, which is a TooMuchData if compressed records take more than `limit`
    bytes, and OutOfSteps if more than `steps` records would have to be read.
    """
    batch = parse_header(buffer, start)
    with memoryview(buffer) as view:
        data = bytes(decompress(batch.compression, view[start + HEADER_SIZE : batch.end], limit))
    append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
    position = 0
    try:
        for number in range(batch.record_count):
            if number >= steps:
                raise OutOfSteps
            length, body = read_int(data, position)
            delta, after = read_long(data, body + 1)
            offset = batch.base_offset + read_int(data, after)[0]
            timestamp = batch.base_timestamp + delta if append_time is None else append_time
            if timestamp >= timestamp_ms and offset >= first_offset:
                return FoundRecord(offset, timestamp)
            if length < 0:
                raise CorruptBatch(start, f"a record has a length of {length}")
            position = body + length
    except IndexError:
        raise CorruptBatch(start, "a record passes the end of the batch") from None
    return None


def request_for(batch: Buffer, timestamp_ms: int, first_offset: int) -> bytes:
    """Return the task's input."""
    return _HEAD.pack(timestamp_ms, first_offset) + batch


def search(request: Buffer) -> bytes:
    """Search the batch of a request; this is the task."""
    timestamp_ms, first_offset = _HEAD.unpack_from(request)
    try:
        found = first_record_at(request, _HEAD.size, timestamp_ms, first_offset)
    except CorruptBatch as error:
        return _DAMAGED + error.reason.encode()
    return _NOTHING if found is None else _FOUND.pack(b"F", *found)


def result_of(result: bytes) -> FoundRecord | None:
    """Return what a task has found; raise CorruptBatch."""
    if result == _NOTHING:
        return None
    if result[:1] == _DAMAGED:
        raise CorruptBatch(0, result[1:].decode())
    _, offset, timestamp = _FOUND.unpack(result)
    return FoundRecord(offset, timestamp)
