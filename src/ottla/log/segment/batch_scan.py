"""Iterate over the batches of a segment file, by headers only or with every CRC checked.

Old Kafka directories may hold message sets of magic 0 and 1: each of their messages appears as
a batch of one offset.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Iterator
from struct import Struct
from typing import Final

from ottla.log.damage import DamagedLog
from ottla.ports import Buffer, File
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    Batch,
    CorruptBatch,
    crc_of,
    parse_header,
)

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""How far an offset may be from the base offset of its segment: indexes have four bytes for it."""

MIN_CHUNK: Final = 4096
MAX_CHUNK: Final = 256 * 1024
CHECKED_CHUNK: Final = 1024 * 1024

_MIN_ENTRY = MAGIC_OFFSET + 1
_MIN_LEGACY_LENGTH = 14
_LEGACY = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")


def header_at(buffer: Buffer, at: int, position: int) -> Batch | None:
    """Return the header at buffer[at:], at `position` in its file; None if it is incomplete.

    Raise CorruptBatch if no batch begins like this.
    """
    if len(buffer) - at < _MIN_ENTRY:
        return None
    magic = buffer[at + MAGIC_OFFSET]
    if magic != MAGIC_V2:
        return _legacy_header(buffer, at, position, magic)
    if len(buffer) - at < HEADER_SIZE:
        return None
    batch = parse_header(buffer, at)
    if position != at:
        batch = batch._replace(position=position)
    if batch.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(position, f"batch length {batch.batch_length} is below a header's")
    if batch.last_offset_delta < 0 or batch.base_offset < 0:
        raise CorruptBatch(position, f"offsets {batch.base_offset} to {batch.last_offset}")
    return batch


def batches(file: File, position: int, end: int) -> Iterator[Batch]:
    """Yield the headers of the whole batches in [position, end) of a file.

    Stop before an incomplete batch. Raise CorruptBatch where there is none.
    """
    buffer, start, chunk, found = b"", position, MIN_CHUNK, 0
    while position < end:
        batch = header_at(buffer, position - start, position) if found else None
        if batch is None:
            chunk = min(chunk * 2, MAX_CHUNK) if found > 8 else MIN_CHUNK
            buffer, start, found = file.pread(min(chunk, end - position), position), position, 0
            batch = header_at(buffer, 0, position)
            if batch is None:
                return
        found += 1
        position = batch.end
        if position > end:
            return
        yield batch


def written_batches(file: File, position: int, end: int, base_offset: int) -> Iterator[Batch]:
    """Yield the batches of a segment from a position on.

    Raise DamagedLog where there is none up to the end, or where offsets do not rise or are too
    far from the base offset of the segment.
    """
    next_offset, last_allowed = base_offset, base_offset + MAX_RELATIVE_OFFSET
    try:
        for batch in batches(file, position, end):
            last_offset = batch.base_offset + batch.last_offset_delta
            if batch.base_offset < next_offset or last_offset > last_allowed:
                raise CorruptBatch(
                    position,
                    f"offsets {batch.base_offset} to {last_offset} after {next_offset - 1}",
                )
            position, next_offset = batch.end, last_offset + 1
            yield batch
    except CorruptBatch as error:
        raise DamagedLog(file.path, str(error)) from None
    if position < end:
        raise DamagedLog(file.path, f"at position {position}: the batch is incomplete")


def checked_batches(file: File, position: int, end: int) -> Iterator[Batch]:
    """Yield batches as `batches` does, and check the CRC of each; all bytes are read."""
    start, buffer = position, b""
    while position < end:
        batch = header_at(buffer, position - start, position) if buffer else None
        if batch is None or batch.end > start + len(buffer):
            wanted = max(CHECKED_CHUNK, batch.size if batch is not None else 0)
            buffer, start = file.pread(min(wanted, end - position), position), position
            batch = header_at(buffer, 0, position)
            if batch is None:
                return
            if batch.end > start + len(buffer):
                if batch.end > end:
                    return
                buffer = file.pread(batch.size, position)
        check_crc(buffer, batch, position - start)
        position = batch.end
        yield batch


def check_crc(buffer: Buffer, batch: Batch, at: int) -> None:
    """Raise CorruptBatch unless the batch at buffer[at:] matches its CRC.

    Old messages too: an incomplete header of a v2 batch with zeros after it looks like magic 0.
    """
    with memoryview(buffer) as view:
        if batch.magic == MAGIC_V2:
            computed = crc_of(view, at, at + batch.size)
        else:
            computed = crc32(view[at + MAGIC_OFFSET : at + batch.size])
    if computed != batch.crc:
        raise CorruptBatch(
            batch.position, f"CRC {batch.crc:#010x} is stored, {computed:#010x} computed"
        )


def _legacy_header(buffer: Buffer, at: int, position: int, magic: int) -> Batch | None:
    if magic > 1:
        raise CorruptBatch(position, f"unknown magic {magic}")
    if len(buffer) - at < _LEGACY.size + 8:
        return None
    offset, length, crc, _, attributes = _LEGACY.unpack_from(buffer, at)
    if length < _MIN_LEGACY_LENGTH or offset < 0:
        raise CorruptBatch(position, f"message of length {length} at offset {offset}")
    timestamp = _TIMESTAMP.unpack_from(buffer, at + _LEGACY.size)[0] if magic else -1
    return Batch(
        offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1, position
    )
