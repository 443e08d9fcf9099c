"""The work of one clean in a helper process: it looks at every record of whole chunks of a log.

The first pass reads the dirty part and collects the last offset of each key. The second pass reads
everything from the start of the log and returns what stays. What Kafka's cleaner keeps, stays:
- the record with the last offset of its key, and everything after the end of the first pass;
- a record without a value (tombstone), until the delete horizon in its batch has passed. The clean
  that first finds it stores the horizon there. In a tiered log, those that the remote part may
  still need stay as they are (`Log.keeps_deletions_from`);
- no batch of an aborted transaction; a transaction marker as `clean_transactions.py` says;
- of a batch without records, the header if it has the last sequence of a producer that is still
  known, or the last offset of the range that is cleaned. In tiered topics also if it is the first
  one of its leader epoch: remote segments are found by the epochs of the log that reads them, so
  all replicas must agree on where epochs begin.
Offsets and sequences never change. The CRC of each batch is checked, so damage is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.config.definition import MAX_LONG
from ottla.log.cleaner.batch_codecs import BatchCodecs
from ottla.log.cleaner.clean_transactions import CleanTransactions
from ottla.log.cleaner.cleaned_batches import CleanedSegment, with_records, without_records
from ottla.log.cleaner.key_offsets import BatchRecords, KeyOffsets, Selection
from ottla.log.cleaner.timestamp_shift import shifted
from ottla.log.segment.batch_scan import check_crc, header_at
from ottla.log.segment.txn_index import TXN_ENTRY, AbortedTxn
from ottla.log.state.producer_replay import read_marker
from ottla.ports import Buffer, SharedFile
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC_V2,
    Batch,
    CorruptBatch,
)
from ottla.records.compression import decompress

if TYPE_CHECKING:
    from ottla.log.cleaner.array_key_offsets import ArrayKeyOffsets

ACTIVE_PRODUCER: Final = Struct(">qqh")
"""Producer id, the last offset of its last batch with data (-1 if that is not known), its epoch."""

ARRAYS_FROM_BYTES: Final = 8 * 1024 * 1024
"""Smaller logs are cleaned without numpy: it takes 0.1 s and 15 MiB of memory to start."""

Fill: TypeAlias = Callable[[memoryview], None]
"""Writes the bytes of a chunk of a segment."""

_PADDING: Final = 16
"""How many bytes the buffer has after the last batch: a key may be read a word at a time."""

_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""How many bytes of decompressed records are looked at together."""


class CleaningSession:
    """The state of one clean between its tasks."""

    def __init__(self, fields: dict[str, Any], producers: Buffer, aborted: Buffer) -> None:
        self.offsets = new_key_offsets(
            fields["map_bytes"],
            fields["load_factor"],
            bytes.fromhex(fields["seed"]),
            in_arrays=fields["bytes"] >= ARRAYS_FROM_BYTES,
        )
        self._first_dirty = fields["first_dirty_offset"]
        self._upper_bound = fields["upper_bound"]
        self._now_ms = fields["now_ms"]
        self._delete_retention_ms = fields["delete_retention_ms"]
        self._keep_deletions_from: int = fields["keep_deletions_from"]
        self._keep_epoch_starts = fields["keep_epoch_starts"]
        self._leader_epoch: int | None = None
        """The leader epoch of the last batch that the second pass has seen."""
        self._begins_epoch = False
        self._interval = fields["index_interval_bytes"]
        self._last_of: dict[int, tuple[int, int]] = {
            producer_id: (last_offset, epoch)
            for producer_id, last_offset, epoch in ACTIVE_PRODUCER.iter_unpack(producers)
        }
        self._aborted = [AbortedTxn(*each[1:]) for each in TXN_ENTRY.iter_unpack(aborted)]
        self._transactions = CleanTransactions(
            each for each in self._aborted if each.last_offset >= self._first_dirty
        )
        self.latest_offset = -1
        self.is_full = False
        self.output = CleanedSegment(0, self._interval)
        self._input = BatchStream()
        self._codecs = BatchCodecs()
        self.file: SharedFile | None = None
        """The segment that is being read, unless its bytes come with the tasks."""
        self.records_read = self.records_kept = self.invalid_records = 0

    def close_file(self) -> None:
        """Close the file of the segment that was read."""
        file, self.file = self.file, None
        if file is not None:
            file.close()

    # -- the first pass ------------------------------------------------------------------

    def begin_input(self, first_offset: int = 0, end_offset: int = MAX_LONG) -> None:
        """Begin to read another segment, of which only some offsets count."""
        self._input.begin(first_offset, end_offset)

    def add_keys(self, size: int, fill: Fill, left: int) -> None:
        """Collect the keys of a chunk of the dirty part; `is_full` if the map is full.

        `fill` writes its bytes. `left` bytes of the segment come after the chunk.
        """
        data = self._input.add(size, fill, left)
        some = self._none_yet()
        for batch in self._input.batches(left):
            if batch.is_control:
                self._transactions.is_marker_unused(batch, _marker_of(data, batch))
                some.add(batch)
            elif self._transactions.is_aborted(batch) or not batch.record_count:
                some.add(batch)
            else:
                some.add(batch, self._records_of(data, batch))
            if some.size >= _BYTES_AT_ONCE:
                if not self._add_some(some):
                    return
                some = self._none_yet()
        self._add_some(some)

    def _add_some(self, some: _Some) -> bool:
        """Add the keys of batches; return False if the map is full."""
        added = self.offsets.add_batches(some.records, self._first_dirty)
        batches = some.batches
        if added < len(some.records):
            self.is_full = True
            batches = batches[: some.numbers[added]]
        if batches and batches[-1].last_offset >= self._first_dirty:
            self.latest_offset = batches[-1].last_offset
        return not self.is_full

    def end_first_pass(self) -> None:
        """Begin again at the start of the log."""
        self._transactions = CleanTransactions(self._aborted)

    # -- the second pass -----------------------------------------------------------------

    def begin_segment(self, base_offset: int) -> None:
        """Begin the output of a new segment."""
        self.output = CleanedSegment(base_offset, self._interval)

    def filter(self, size: int, fill: Fill, left: int, latest_offset: int) -> None:
        """Add what stays of a chunk to the output; `left` bytes of the segment come after it.

        Take the output before the next chunk: parts of it are in the buffer of the input.
        """
        data = self._input.add(size, fill, left)
        some = self._none_yet()
        for batch in self._input.batches(left):
            self.records_read += batch.record_count
            if self._keep_epoch_starts and batch.partition_leader_epoch != self._leader_epoch:
                some.epoch_starts.add(len(some.batches))
                self._leader_epoch = batch.partition_leader_epoch
            if batch.is_control:
                is_unused = self._transactions.is_marker_unused(
                    batch, _marker_of(data, batch), must_stay=self._keeps_deletions_of(batch)
                )
                some.add(batch, is_unused=is_unused)
            elif self._transactions.is_aborted(batch) or not batch.record_count:
                some.add(batch)
            else:
                horizon_ms = batch.delete_horizon_ms
                keeps = horizon_ms is None or self._now_ms < horizon_ms
                keeps = keeps or self._keeps_deletions_of(batch)
                some.add(batch, self._records_of(data, batch, keeps))
            if some.size >= _BYTES_AT_ONCE:
                self._filter_some(data, some, latest_offset)
                some = self._none_yet()
        self._filter_some(data, some, latest_offset)

    def _filter_some(self, chunk: bytearray, some: _Some, latest_offset: int) -> None:
        """Add what stays of batches to the output."""
        selected = self.offsets.select_batches(some.records, latest_offset)
        data_batches = dict(
            zip(some.numbers, zip(some.records, selected, strict=True), strict=True)
        )
        for number, batch in enumerate(some.batches):
            self._begins_epoch = number in some.epoch_starts
            if batch.is_control:
                self._filter_control(chunk, batch, number in some.unused)
            elif number in data_batches:
                records, selection = data_batches[number]
                self._filter_data(chunk, batch, records, selection)
            else:
                self._keep_header(batch)

    def _keeps_deletions_of(self, batch: Batch) -> bool:
        """Return True if what a batch deletes may be outside of the log that is cleaned."""
        return batch.last_offset >= self._keep_deletions_from

    def _none_yet(self) -> _Some:
        """Begin to collect batches that are looked at together."""
        self._codecs.forget()
        return _Some()

    def _records_of(
        self, chunk: bytearray, batch: Batch, keep_tombstones: bool = True
    ) -> BatchRecords:
        data: Buffer = chunk
        start, end = batch.position + HEADER_SIZE, batch.end
        if batch.compression:
            with memoryview(chunk) as view:
                data, start, end = self._codecs.decompress(batch.compression, view[start:end])
        return BatchRecords(
            data, start, end, batch.base_offset, batch.record_count, keep_tombstones
        )

    def take_aborted(self) -> bytes:
        """Return the entries for the transaction index since the last call."""
        kept = self._transactions.kept
        entries = b"".join(TXN_ENTRY.pack(0, *transaction) for transaction in kept)
        kept.clear()
        return entries

    def _filter_control(self, chunk: bytearray, batch: Batch, is_unused: bool) -> None:
        horizon_ms = batch.delete_horizon_ms
        is_over = is_unused and horizon_ms is not None and horizon_ms <= self._now_ms
        if is_over or not batch.record_count:
            self._keep_header(batch)
        elif is_unused and horizon_ms is None:
            records = records_of(chunk, batch)
            self._rewrite(batch, records, batch.record_count, batch.max_timestamp, True)
        else:
            self._keep(chunk, batch)

    def _filter_data(
        self, chunk: bytearray, batch: Batch, records: BatchRecords, selection: Selection
    ) -> None:
        if not selection.kept:
            self._keep_header(batch)
            return
        sets_horizon = selection.has_tombstones and batch.delete_horizon_ms is None
        sets_horizon = sets_horizon and not self._keeps_deletions_of(batch)
        if selection.records is None and not sets_horizon:
            self._keep(chunk, batch)
            return
        kept = selection.records
        if kept is None:
            kept = bytes(records.data[records.start : records.end])
        max_timestamp = batch.max_timestamp
        if batch.timestamp_type != LOG_APPEND_TIME:
            max_timestamp = batch.base_timestamp + selection.max_timestamp_delta
        self._rewrite(batch, kept, selection.kept, max_timestamp, sets_horizon)

    def _keep(self, chunk: bytearray, batch: Batch) -> None:
        """Copy a batch as it is."""
        self.records_kept += batch.record_count
        content = memoryview(chunk)[batch.position : batch.end]
        self.output.add(content, batch.last_offset, batch.max_timestamp)

    def _keep_header(self, batch: Batch) -> None:
        """Keep a batch without its records, if anybody needs its sequence, offset or epoch."""
        if (
            self._is_last_of_producer(batch)
            or batch.next_offset == self._upper_bound
            or self._begins_epoch
        ):
            self.output.add(without_records(batch), batch.last_offset, batch.max_timestamp)

    def _rewrite(
        self, batch: Batch, records: bytes, count: int, max_timestamp: int, sets_horizon: bool
    ) -> None:
        base_timestamp = batch.base_timestamp
        if sets_horizon:
            base_timestamp = self._now_ms + self._delete_retention_ms
            records = shifted(records, count, batch.base_timestamp - base_timestamp)
        payload = (
            self._codecs.compress(batch.compression, records) if batch.compression else records
        )
        made = with_records(
            batch, payload, count, base_timestamp, max_timestamp, has_delete_horizon=sets_horizon
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


class _Some:
    """Batches that are looked at together."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.records: list[BatchRecords] = []
        """Of those whose records matter."""
        self.numbers: list[int] = []
        """Which of the batches these are."""
        self.unused: set[int] = set()
        """Which of the batches are markers that nobody needs."""
        self.epoch_starts: set[int] = set()
        """Which of the batches are the first ones of their leader epochs, if these are kept."""
        self.size = 0

    def add(
        self, batch: Batch, records: BatchRecords | None = None, *, is_unused: bool = False
    ) -> None:
        if records is not None:
            self.numbers.append(len(self.batches))
            self.records.append(records)
            self.size += records.end - records.start
        if is_unused:
            self.unused.add(len(self.batches))
        self.batches.append(batch)


class BatchStream:
    """The batches of a segment that comes in chunks, with their CRCs checked.

    Chunks are written into one buffer, which is used again for the next chunk. What a chunk has of
    an incomplete batch is moved to its start then.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = self._end = self._needed = 0
        self._first_offset, self._end_offset = 0, MAX_LONG

    def begin(self, first_offset: int = 0, end_offset: int = MAX_LONG) -> None:
        """Begin another segment; leave out batches before one offset, and from the other on."""
        self._start = self._end = self._needed = 0
        self._first_offset, self._end_offset = first_offset, end_offset

    def add(self, size: int, fill: Fill, left: int) -> bytearray:
        """Let `fill` write the next bytes of the segment, and return the buffer.

        The segment has `left` more bytes after them. Raise CorruptBatch if that is not enough for
        the next batch.
        """
        rest = bytes(memoryview(self._buffer)[self._start : self._end])
        end = len(rest) + size
        if len(self._buffer) < end + _PADDING:
            self._buffer = bytearray(end + _PADDING)
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
        fill(memoryview(self._buffer)[len(rest) : end])
        self._end = end
        if self._needed > end + left:
            raise CorruptBatch(0, f"a batch of {self._needed} bytes is longer than its segment")
        return self._buffer

    def batches(self, left: int) -> Iterator[Batch]:
        """Yield the whole batches in the buffer, and keep the rest."""
        position, end = 0, self._end
        if end < self._needed:
            return
        with memoryview(self._buffer) as buffer, buffer[:end] as view:
            while position < end:
                batch = header_at(view, position, position)
                if batch is None or batch.end > end:
                    self._needed = HEADER_SIZE if batch is None else batch.size
                    break
                if batch.magic != MAGIC_V2:
                    raise CorruptBatch(position, f"it has the old format {batch.magic}")
                check_crc(view, batch, position)
                if self._first_offset <= batch.last_offset and batch.base_offset < self._end_offset:
                    yield batch
                position = batch.end
            else:
                self._needed = 0
        self._start = position
        if self._needed > end - position + left:
            raise CorruptBatch(0, f"a batch of {self._needed} bytes is longer than its segment")


def records_of(chunk: bytearray, batch: Batch) -> bytes:
    """Return the records of a batch, decompressed."""
    with memoryview(chunk) as view:
        payload = view[batch.position + HEADER_SIZE : batch.end]
        return bytes(decompress(batch.compression, payload) if batch.compression else payload)


def new_key_offsets(
    map_bytes: int, load_factor: float, seed: bytes, *, in_arrays: bool
) -> KeyOffsets | ArrayKeyOffsets:
    """Return an empty map: with `in_arrays` the one of numpy, if that is installed."""
    if in_arrays:
        try:
            from ottla.log.cleaner.array_key_offsets import ArrayKeyOffsets
        except ImportError:
            pass
        else:
            return ArrayKeyOffsets(map_bytes, load_factor, seed)
    return KeyOffsets(map_bytes, load_factor)


def _marker_of(chunk: bytearray, batch: Batch) -> Any:
    return read_marker(memoryview(chunk)[batch.position : batch.end])
