"""The work of one clean in a helper process: it looks at every record of whole chunks of a log.

The first pass reads the dirty part and collects the last offset of each key. The second pass reads
everything from the start of the log and returns what stays. What Kafka's cleaner keeps, stays:
- the record with the last offset of its key, and everything after the end of the first pass;
- a record without a value (tombstone), until the delete horizon in its batch has passed. The clean
  that first finds it stores the horizon there;
- no batch of an aborted transaction; a transaction marker as `clean_transactions.py` says;
- of a batch without records, the header if it has the last sequence of a producer that is still
  known, or the last offset of the range that is cleaned.
Offsets and sequences never change. The CRC of each batch is checked, so damage is not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.log.cleaner.clean_transactions import CleanTransactions
from ottla.log.cleaner.cleaned_batches import CleanedSegment, with_records, without_records
from ottla.log.cleaner.timestamp_shift import shifted
from ottla.log.segment.batch_scan import check_crc, header_at
from ottla.log.segment.txn_index import TXN_ENTRY, AbortedTxn
from ottla.log.state.producer_replay import read_marker
from ottla.ports import Buffer
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC_V2,
    Batch,
    CorruptBatch,
)
from ottla.records.compression import decompress

if TYPE_CHECKING:
    from ottla.log.cleaner.compiled_key_offsets import CompiledKeyOffsets
    from ottla.log.cleaner.key_offsets import KeyOffsets

ACTIVE_PRODUCER: Final = Struct(">qqh")
"""Producer id, the last offset of its last batch with data (-1 if that is not known), its epoch."""

COMPILED_FROM_BYTES: Final = 32 * 1024 * 1024
"""Smaller logs are cleaned without numba: it takes a second and 100 MiB of memory to start."""


class CleaningSession:
    """The state of one clean between its tasks."""

    def __init__(self, fields: dict[str, Any], producers: Buffer, aborted: Buffer) -> None:
        self.offsets = new_key_offsets(
            fields["map_bytes"],
            fields["load_factor"],
            bytes.fromhex(fields["seed"]),
            compiled=fields["bytes"] >= COMPILED_FROM_BYTES,
        )
        self._first_dirty = fields["first_dirty_offset"]
        self._upper_bound = fields["upper_bound"]
        self._now_ms = fields["now_ms"]
        self._delete_retention_ms = fields["delete_retention_ms"]
        self._interval = fields["index_interval_bytes"]
        self._last_of: dict[int, tuple[int, int]] = {
            producer_id: (last_offset, epoch)
            for producer_id, last_offset, epoch in ACTIVE_PRODUCER.iter_unpack(producers)
        }
        self._aborted = [AbortedTxn(*each[1:]) for each in TXN_ENTRY.iter_unpack(aborted)]
        self._transactions = CleanTransactions(self._aborted)
        self.latest_offset = -1
        self.is_full = False
        self.output = CleanedSegment(0, self._interval)
        self._input = BatchStream()
        self.records_read = self.records_kept = self.invalid_records = 0

    # -- the first pass ------------------------------------------------------------------

    def begin_input(self) -> None:
        """Begin to read another segment."""
        self._input = BatchStream()

    def add_keys(self, chunk: bytes, left: int) -> None:
        """Collect the keys of a chunk of the dirty part; `is_full` if the map is full.

        `left` bytes of the segment come after the chunk.
        """
        data = self._input.add(chunk, left)
        for batch in self._input.batches(data, left):
            if not self._add_batch(data, batch):
                self.is_full = True
                return
            if batch.last_offset >= self._first_dirty:
                self.latest_offset = batch.last_offset

    def _add_batch(self, chunk: bytes, batch: Batch) -> bool:
        if batch.is_control:
            self._transactions.is_marker_unused(batch, _marker_of(chunk, batch))
            return True
        if self._transactions.is_aborted(batch) or not batch.record_count:
            return True
        return self.offsets.add(
            records_of(chunk, batch), batch.base_offset, batch.record_count, self._first_dirty
        )

    def end_first_pass(self) -> None:
        """Begin again at the start of the log."""
        self._transactions = CleanTransactions(self._aborted)

    # -- the second pass -----------------------------------------------------------------

    def begin_segment(self, base_offset: int) -> None:
        """Begin the output of a new segment."""
        self.output = CleanedSegment(base_offset, self._interval)

    def filter(self, chunk: bytes, left: int, latest_offset: int) -> None:
        """Add what stays of a chunk to the output; `left` bytes of the segment come after it."""
        data = self._input.add(chunk, left)
        for batch in self._input.batches(data, left):
            self.records_read += batch.record_count
            if batch.is_control:
                self._filter_control(data, batch)
            else:
                self._filter_data(data, batch, latest_offset)

    def take_aborted(self) -> bytes:
        """Return the entries for the transaction index since the last call."""
        kept = self._transactions.kept
        entries = b"".join(TXN_ENTRY.pack(0, *transaction) for transaction in kept)
        kept.clear()
        return entries

    def _filter_control(self, chunk: bytes, batch: Batch) -> None:
        is_unused = self._transactions.is_marker_unused(batch, _marker_of(chunk, batch))
        horizon_ms = batch.delete_horizon_ms
        is_over = is_unused and horizon_ms is not None and horizon_ms <= self._now_ms
        if is_over or not batch.record_count:
            self._keep_header(batch)
        elif is_unused and horizon_ms is None:
            records = records_of(chunk, batch)
            self._rewrite(batch, records, batch.record_count, batch.max_timestamp, True)
        else:
            self._keep(chunk, batch)

    def _filter_data(self, chunk: bytes, batch: Batch, latest_offset: int) -> None:
        if self._transactions.is_aborted(batch) or not batch.record_count:
            self._keep_header(batch)
            return
        horizon_ms = batch.delete_horizon_ms
        records = records_of(chunk, batch)
        selection = self.offsets.select(
            records,
            batch.base_offset,
            batch.record_count,
            latest_offset,
            keep_tombstones=horizon_ms is None or self._now_ms < horizon_ms,
        )
        if not selection.kept:
            self._keep_header(batch)
            return
        sets_horizon = selection.has_tombstones and horizon_ms is None
        if selection.records is None and not sets_horizon:
            self._keep(chunk, batch)
            return
        kept = records if selection.records is None else selection.records
        max_timestamp = batch.max_timestamp
        if batch.timestamp_type != LOG_APPEND_TIME:
            max_timestamp = batch.base_timestamp + selection.max_timestamp_delta
        self._rewrite(batch, kept, selection.kept, max_timestamp, sets_horizon)

    def _keep(self, chunk: bytes, batch: Batch) -> None:
        """Copy a batch as it is."""
        self.records_kept += batch.record_count
        content = memoryview(chunk)[batch.position : batch.end]
        self.output.add(content, batch.last_offset, batch.max_timestamp)

    def _keep_header(self, batch: Batch) -> None:
        """Keep a batch without its records, if anybody needs its sequence or its offset."""
        if self._is_last_of_producer(batch) or batch.next_offset == self._upper_bound:
            self.output.add(without_records(batch), batch.last_offset, batch.max_timestamp)

    def _rewrite(
        self, batch: Batch, records: bytes, count: int, max_timestamp: int, sets_horizon: bool
    ) -> None:
        base_timestamp = batch.base_timestamp
        if sets_horizon:
            base_timestamp = self._now_ms + self._delete_retention_ms
            records = shifted(records, count, batch.base_timestamp - base_timestamp)
        made = with_records(
            batch, records, count, base_timestamp, max_timestamp, has_delete_horizon=sets_horizon
        )
        self.records_kept += count
        self.output.add(made, batch.last_offset, max_timestamp)

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self._last_of.get(batch.producer_id)
        if last is None or batch.producer_id < 0:
            return False
        last_offset, epoch = last
        if last_offset >= 0:
            return batch.last_offset == last_offset
        return batch.is_control and batch.producer_epoch == epoch


class BatchStream:
    """The batches of a segment that comes in chunks, with their CRCs checked.

    What a chunk has of an incomplete batch is kept for the next one.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = 0

    def add(self, chunk: bytes, left: int) -> bytes:
        """Return the bytes that are there now; none while the next batch is incomplete.

        The segment has `left` more bytes after the chunk. Raise CorruptBatch if that is not
        enough for the next batch.
        """
        self._parts.append(chunk)
        self._size += len(chunk)
        if self._needed > self._size + left:
            raise CorruptBatch(0, f"a batch of {self._needed} bytes is longer than its segment")
        if self._size < self._needed:
            return b""
        data = chunk if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size, self._needed = [], 0, 0
        return data

    def batches(self, data: bytes, left: int) -> Iterator[Batch]:
        """Yield the whole batches of the data, and keep the rest."""
        position, end = 0, len(data)
        while position < end:
            batch = header_at(data, position, position)
            if batch is None or batch.end > end:
                self._keep(data[position:], HEADER_SIZE if batch is None else batch.size, left)
                return
            if batch.magic != MAGIC_V2:
                raise CorruptBatch(position, f"it has the old format {batch.magic}")
            check_crc(data, batch, position)
            yield batch
            position = batch.end

    def _keep(self, rest: bytes, needed: int, left: int) -> None:
        self._parts, self._size, self._needed = [rest], len(rest), needed
        if needed > len(rest) + left:
            raise CorruptBatch(0, f"a batch of {needed} bytes is longer than its segment")


def records_of(chunk: bytes, batch: Batch) -> bytes:
    """Return the records of a batch, decompressed."""
    with memoryview(chunk) as view:
        payload = view[batch.position + HEADER_SIZE : batch.end]
        return bytes(decompress(batch.compression, payload) if batch.compression else payload)


def new_key_offsets(
    map_bytes: int, load_factor: float, seed: bytes, *, compiled: bool
) -> KeyOffsets | CompiledKeyOffsets:
    """Return an empty map: with `compiled` the compiled one, if numba is installed."""
    if compiled:
        try:
            from ottla.log.cleaner.compiled_key_offsets import CompiledKeyOffsets
        except ImportError:
            pass
        else:
            return CompiledKeyOffsets(map_bytes, load_factor, seed)
    from ottla.log.cleaner.key_offsets import KeyOffsets

    return KeyOffsets(map_bytes, load_factor)


def _marker_of(chunk: bytes, batch: Batch) -> Any:
    return read_marker(memoryview(chunk)[batch.position : batch.end])
