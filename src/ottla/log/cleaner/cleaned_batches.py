"""The batches that a clean writes, with the entries of the indexes of their segment."""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.model.ids import NO_TIMESTAMP
from ottla.ports import Buffer
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CRC_OFFSET,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_V2,
    Batch,
)
from ottla.records.checksum import crc32c

_OFFSET_ENTRY: Final = Struct(">ii")
_LENGTH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_TIME_ENTRY: Final = Struct(">qi")


def with_records(
    batch: Batch,
    payload: bytes,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    has_delete_horizon: bool,
) -> bytearray:
    """Return a batch with fewer records, which keeps its offsets, sequences and codec.

    `payload` has the records, compressed.
    """
    attributes = batch.attributes | (DELETE_HORIZON_MASK if has_delete_horizon else 0)
    return _sealed(batch, attributes, base_timestamp, max_timestamp, count, payload)


def without_records(batch: Batch) -> bytearray:
    """Return an empty batch, which keeps the last sequence of its producer, or the last offset."""
    attributes = batch.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK)
    return _sealed(batch, attributes, NO_TIMESTAMP, batch.max_timestamp, 0, b"")


def _sealed(
    batch: Batch,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    payload: bytes,
) -> bytearray:
    made = bytearray(HEADER_SIZE) + payload
    HEADER.pack_into(
        made,
        0,
        batch.base_offset,
        0,
        batch.partition_leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    finish_batch(made)
    return made


def finish_batch(batch: bytearray) -> None:
    """Set the length and the CRC of a batch."""
    _LENGTH.pack_into(batch, LENGTH_OFFSET, len(batch) - LOG_OVERHEAD)
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_OFFSET, crc32c(view[ATTRIBUTES_OFFSET:]))


class CleanedSegment:
    """The output for one new segment: batches, and the index entries that are due."""

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._indexed_position = 0
        self._last_time_entry = NO_TIMESTAMP
        self.size = 0
        self.unchanged_bytes = 0
        """How many bytes are batches that stay as they are."""
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._batches: list[Buffer] = []
        self._offset_entries = bytearray()
        self._time_entries = bytearray()

    def add(self, content: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Add a batch."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if self.size - self._indexed_position > self._interval:
            self._indexed_position = self.size
            relative = last_offset - self._base_offset
            self._offset_entries += _OFFSET_ENTRY.pack(relative, self.size)
            self.add_time_entry()
        self._batches.append(content)
        self.size += len(content)

    def add_time_entry(self) -> None:
        """Add the largest timestamp to the time index, unless it is there already."""
        if self.max_timestamp > self._last_time_entry:
            self._last_time_entry = self.max_timestamp
            relative = self.max_timestamp_offset - self._base_offset
            self._time_entries += _TIME_ENTRY.pack(self.max_timestamp, relative)

    def take_batches(self) -> list[Buffer]:
        """Return the batches since the last call."""
        taken, self._batches = self._batches, []
        return taken

    def take_entries(self) -> tuple[bytes, bytes]:
        """Return the offset entries and time entries since the last call."""
        taken = bytes(self._offset_entries), bytes(self._time_entries)
        self._offset_entries.clear()
        self._time_entries.clear()
        return taken
