"""The batches in the pieces of a log object, each checked: its CRC, and that offsets rise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.log.segment.batch_scan import check_crc, header_at
from ottla.records.batch import MAGIC_V2, Batch, CorruptBatch
from ottla.records.legacy import Message, parse_any, records_of_message
from ottla.records.record import Record, records_of
from ottla.tier_reader.errors import DamagedObject
from ottla.tiered.layout import LOG
from ottla.tiered.manifest import Manifest


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

    Raises DamagedObject at the first batch that is damaged, incomplete or has wrong offsets.
    """
    key = manifest.key(LOG)
    next_offset = manifest.start_offset
    pending: list[bytes] = []
    needed = 1
    for chunk in chunks:
        pending.append(chunk)
        if sum(map(len, pending)) < needed:
            continue
        buffer = pending[0] if len(pending) == 1 else b"".join(pending)
        view = memoryview(buffer)
        at, needed = 0, 1
        while at < len(buffer):
            batch = _header(buffer, at, position + at, key)
            if batch is None:
                break
            if batch.end > manifest.size:
                raise DamagedObject(key, f"at position {batch.position}: the batch is incomplete")
            if at + batch.size > len(buffer):
                needed = batch.size
                break
            _check(buffer, batch, at, next_offset, manifest, key)
            yield RemoteBatch(batch, view[at : at + batch.size])
            at += batch.size
            next_offset = batch.next_offset
        position += at
        pending = [buffer[at:]] if at < len(buffer) else []
    if pending:
        raise DamagedObject(key, f"at position {position}: the batch is incomplete")


def _header(buffer: bytes, at: int, position: int, key: str) -> Batch | None:
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
