"""The batches in the pieces of a log object, each checked: its CRC, and that offsets rise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.log.segment.batch_scan import check_crc, header_at
from ottla.records.batch import HEADER_SIZE, MAGIC_V2, Batch, CorruptBatch
from ottla.records.legacy import Message, parse_any, records_of_message
from ottla.records.record import Record, records_of
from ottla.tier_reader.errors import DamagedObject
from ottla.tiered.layout import LOG
from ottla.tiered.manifest import Manifest

_LEAST_ENTRY: Final = 26
"""The size of the smallest message of an old format: enough bytes to read a header."""


class RemoteBatch(NamedTuple):
    """A batch as it is in the log: its header, and all its bytes, which may be kept."""

    header: Batch
    """Its `position` is that in the log object."""
    data: memoryview

    def records(self) -> list[Record]:
        """Return the records, decompressed; raise CorruptBatch if they cannot be read."""
        if self.header.magic == MAGIC_V2:
            return records_of(self.data)
        message = parse_any(self.data, 0, len(self.data))
        assert isinstance(message, Message), "its header says so"
        return records_of_message(self.data, message)


def batches_in(chunks: Iterable[bytes], manifest: Manifest, position: int) -> Iterator[RemoteBatch]:
    """Yield the batches of a segment from a position on; `chunks` are its bytes from there.

    Raise DamagedObject at the first batch that is damaged, incomplete or has wrong offsets. Only a
    batch that lies in several chunks is copied.
    """
    key = manifest.key(LOG)
    next_offset = manifest.start_offset
    carried = b""
    for chunk in chunks:
        at = 0
        if carried:
            carried, at = _extended(carried, chunk, position, key)
            batch = _header(carried, 0, position, manifest, key)
            if batch is None or batch.size > len(carried):
                continue
            _check(carried, batch, 0, next_offset, manifest, key)
            yield RemoteBatch(batch, memoryview(carried))
            position, next_offset, carried = batch.end, batch.next_offset, b""
        view = memoryview(chunk)
        while at < len(chunk):
            batch = _header(chunk, at, position, manifest, key)
            if batch is None or at + batch.size > len(chunk):
                carried = chunk[at:]
                break
            _check(chunk, batch, at, next_offset, manifest, key)
            yield RemoteBatch(batch, view[at : at + batch.size])
            at += batch.size
            position, next_offset = batch.end, batch.next_offset
    if carried:
        raise DamagedObject(key, f"at position {position}: the batch is incomplete")


def _extended(carried: bytes, chunk: bytes, position: int, key: str) -> tuple[bytes, int]:
    """Return the beginning of a batch with as much of the next chunk as it needs, and how much."""
    at = 0
    while at < len(chunk):
        batch = _parse(carried, 0, position, key)
        if batch is not None:
            whole = batch.size
        else:
            whole = _LEAST_ENTRY if len(carried) < _LEAST_ENTRY else HEADER_SIZE
        missing = whole - len(carried)
        if missing <= 0:
            break
        carried += chunk[at : at + missing]
        at = min(at + missing, len(chunk))
    return carried, at


def _header(buffer: bytes, at: int, position: int, manifest: Manifest, key: str) -> Batch | None:
    """Return the header of a batch that ends within the segment; None if it is incomplete."""
    batch = _parse(buffer, at, position, key)
    if batch is not None and batch.end > manifest.size:
        raise DamagedObject(key, f"at position {position}: the batch is incomplete")
    return batch


def _parse(buffer: bytes, at: int, position: int, key: str) -> Batch | None:
    try:
        return header_at(buffer, at, position)
    except CorruptBatch as error:
        raise DamagedObject(key, str(error)) from None


def _check(
    buffer: bytes, batch: Batch, at: int, next_offset: int, manifest: Manifest, key: str
) -> None:
    if batch.base_offset < next_offset or batch.last_offset > manifest.end_offset:
        raise DamagedObject(
            key,
            f"at position {batch.position}: offsets {batch.base_offset} to {batch.last_offset},"
            f" expected {next_offset} to {manifest.end_offset}",
        )
    try:
        check_crc(buffer, batch, at)
    except CorruptBatch as error:
        raise DamagedObject(key, str(error)) from None
