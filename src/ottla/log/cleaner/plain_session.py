"""The work of one clean in plain Python: it looks at one record after the other.

This is for small logs, and for large ones if numpy is not installed.
"""

from __future__ import annotations

from typing import Any

from ottla.log.cleaner.cleaning_session import Chunk, CleaningSession, marker_of
from ottla.log.cleaner.key_offsets import BatchRecords, KeyOffsets
from ottla.ports import Buffer
from ottla.records.batch import HEADER_SIZE, Batch


class PlainSession(CleaningSession):
    """The state of one clean between its tasks."""

    offsets: KeyOffsets

    def __init__(self, fields: dict[str, Any], producers: Buffer, aborted: Buffer) -> None:
        super().__init__(fields, producers, aborted)
        self.offsets = KeyOffsets(fields["map_bytes"], fields["load_factor"])

    def add_keys(self, chunk: Chunk) -> None:
        """Collect the keys of a chunk of the dirty part; `is_full` if the map is full."""
        data = self._input.add(chunk)
        for batch in self._input.batches(chunk.left):
            if batch.is_control:
                self._transactions.is_marker_unused(batch, marker_of(data, batch))
            elif not self._transactions.is_aborted(batch) and batch.record_count:
                self._codecs.forget()
                records = self._records_of(data, batch)
                if not self.offsets.add_batches([records], self._first_dirty):
                    self.is_full = True
                    return
            self._was_read(batch.last_offset)

    def filter(self, chunk: Chunk, latest_offset: int) -> None:
        """Add what stays of a chunk to the output."""
        data = self._input.add(chunk)
        for batch in self._input.batches(chunk.left):
            self.records_read += batch.record_count
            self._note_epoch(batch)
            if batch.is_control:
                is_unused = self._transactions.is_marker_unused(
                    batch, marker_of(data, batch), must_stay=self._keeps_deletions_of(batch)
                )
                self._filter_control(data, batch, is_unused)
            elif self._transactions.is_aborted(batch) or not batch.record_count:
                self._keep_header(batch)
            else:
                self._codecs.forget()
                records = self._records_of(data, batch)
                selection = self.offsets.select_batches([records], latest_offset)[0]
                self._filter_data(data, batch, records, selection)

    def _records_of(self, chunk: bytearray, batch: Batch) -> BatchRecords:
        """Return the records of a batch. Those that were decompressed stay until `forget`."""
        data: Buffer = chunk
        horizon_ms = batch.delete_horizon_ms
        keep_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        keep_tombstones = keep_tombstones or self._keeps_deletions_of(batch)
        start, end = batch.position + HEADER_SIZE, batch.end
        if batch.compression:
            with memoryview(chunk) as view:
                start, end = self._codecs.decompress(batch.compression, view[start:end])
            data = self._codecs.arena
        return BatchRecords(
            data, start, end, batch.base_offset, batch.record_count, keep_tombstones
        )
