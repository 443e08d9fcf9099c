"""The work of one clean in a helper process: it looks at every record of whole chunks of a log.

`plain_session.py` does so in plain Python, `array_session.py` with numpy.

The first pass reads the dirty part and collects the last offset of each key. The second pass reads
everything from the start of the log and returns what stays. It keeps what Kafka's cleaner keeps:
- the record with the last offset of its key, and everything after the end of the first pass;
- a record without a value (tombstone), until the delete horizon in its batch has passed. The clean
  that first finds it stores the horizon there. In a tiered log, those that the remote part may
  still need stay as they are (`Log.keeps_deletions_from`);
- no batch of an aborted transaction; a transaction marker as `clean_transactions.py` says;
- the header of a batch without records, if it has the last sequence of a producer that is still
  known, or the last offset of the range that is cleaned; in tiered topics also if it is the first
  one of its leader epoch: remote segments are found by the epochs of the log that reads them, so
  all replicas must agree on where epochs begin.
Offsets and sequences never change. The CRC of each batch is checked, so damage is not copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ottla.config.definition import MAX_LONG
from ottla.log.cleaner.batch_codecs import BatchCodecs
from ottla.log.cleaner.clean_transactions import CleanTransactions
from ottla.log.cleaner.cleaned_batches import CleanedSegment, with_records, without_records
from ottla.log.cleaner.key_offsets import BatchRecords, Selection
from ottla.log.cleaner.timestamp_shift import shifted
from ottla.log.segment.batch_scan import check_crc, header_at
from ottla.log.segment.txn_index import TXN_ENTRY, AbortedTxn
from ottla.log.state.producer_replay import read_marker
from ottla.ports import Buffer, SharedFile, SharedOutput, start_beside
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC_V2,
    Batch,
    CorruptBatch,
)
from ottla.records.compression import decompress

ACTIVE_PRODUCER: Final = Struct(">qqh")
"""Producer id, the last offset of its last batch with data (-1 if that is not known), its epoch."""

Fill: TypeAlias = Callable[[memoryview], None]
"""Writes the bytes of a chunk of a segment."""


class Chunk(NamedTuple):
    """A chunk of a segment."""

    size: int
    fill: Fill
    left: int
    """How many bytes of the segment come after it."""
    following: tuple[int, Fill] | None = None
    """The size of the next chunk, and what writes it; None if that is not known yet."""


class Part(NamedTuple):
    """A part of a segment that is in a file."""

    position: int
    size: int
    step: int
    """The size of its chunks; the last one may be smaller."""
    left: int
    """How many bytes of the segment come after it."""
    latest_offset: int | None
    """What the second pass knows the keys up to; None in the first pass."""

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.size // self.step)

    def chunk(self, number: int) -> tuple[int, int, int]:
        """Return where a chunk begins, its size, and how many bytes of the segment follow."""
        start = number * self.step
        size = min(self.step, self.size - start)
        return self.position + start, size, self.left + self.size - start - size


Find: TypeAlias = Callable[[bytearray, int, int], tuple[list[int], int, int]]
"""Finds batches; see `batch_headers.find_batches`."""

ROOM: Final = 256 * 1024
"""How many bytes a buffer has before a chunk, for the beginning of its first batch."""
PADDING: Final = 16
"""How many bytes the buffer has after the last batch: a key may be read a word at a time."""


class KeyMap(Protocol):
    """The last offset of each key."""

    def __len__(self) -> int: ...

    @property
    def utilization(self) -> float:
        """How much of the map is used, from 0 to 1."""
        ...


class Sharing(Protocol):
    """How chunks are done together with another process."""

    def do(self, part: Part) -> int:
        """Do chunks of a part from the first one on; return how many are done.

        Whatever is unusual in a chunk is left to this process alone, with all chunks after it.
        """
        ...

    def end(self) -> None:
        """End the other process, if there is one. The next pass has another one."""
        ...


class CleaningSession(ABC):
    """The state of one clean between its tasks, and the rules that say what stays."""

    offsets: KeyMap
    sharing: Sharing | None = None
    """Whether and how there may be another process."""

    def __init__(self, fields: dict[str, Any], producers: Buffer, aborted: Buffer) -> None:
        self._first_dirty = fields["first_dirty_offset"]
        self._upper_bound = fields["upper_bound"]
        self._now_ms = fields["now_ms"]
        self._delete_retention_ms = fields["delete_retention_ms"]
        self._keep_deletions_from: int = fields["keep_deletions_from"]
        self._keep_epoch_starts = fields["keep_epoch_starts"]
        self.leader_epoch: int | None = None
        """The leader epoch of the last batch. Only the second pass needs it."""
        self._begins_epoch = False
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
        self._codecs = BatchCodecs()
        self.file: SharedFile | None = None
        """The segment that is being read, unless its bytes come with the tasks."""
        self.output_file: SharedOutput | None = None
        """The segment that is being written, unless the broker does that."""
        self._writing: Callable[[], None] | None = None
        """Waits until what was written last is in the file."""
        self.records_read = self.records_kept = self.invalid_records = 0

    def close_input(self) -> None:
        """Close the file of the segment that was read."""
        self._input.begin()  # nothing is being read from now on
        file, self.file = self.file, None
        if file is not None:
            file.close()

    def write(self, batches: list[Buffer]) -> None:
        """Append the last batches of the output to its file, in a second thread.

        They may be in the buffer of the input, which is not changed before that: the same thread
        fills it. Raise the error of the write before.
        """
        self.finish_writes()
        assert self.output_file is not None
        position = self.output.size - sum(map(len, batches))
        self._writing = start_beside(partial(self.output_file.write, batches, position))

    def finish_writes(self) -> None:
        """Wait until everything is written; raise the error of the last write."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing()

    def close_output(self) -> None:
        """Close the file of the segment that was written."""
        with suppress(OSError):
            self.finish_writes()
        file, self.output_file = self.output_file, None
        if file is not None:
            file.close()

    def share(self, part: Part) -> int:
        """Do chunks of a part together with another process; return how many of them are done."""
        return 0 if self.sharing is None else self.sharing.do(part)

    def stop_sharing(self) -> None:
        """End the other process, if there is one."""
        if self.sharing is not None:
            self.sharing.end()

    def close_files(self) -> None:
        """Close both, and end the other process: the clean is over."""
        self.stop_sharing()
        self.sharing = None  # it knows this session: together they would wait for the collector
        self.close_input()
        self.close_output()

    # -- the first pass ------------------------------------------------------------------

    def begin_input(self, first_offset: int = 0, end_offset: int = MAX_LONG) -> None:
        """Begin to read another segment, of which only some offsets count."""
        self._input.begin(first_offset, end_offset)

    @abstractmethod
    def add_keys(self, chunk: Chunk) -> None:
        """Collect the keys of a chunk of the dirty part; `is_full` if the map is full."""

    def _was_read(self, last_offset: int) -> None:
        """Note that the first pass has everything up to an offset."""
        if last_offset >= self._first_dirty:
            self.latest_offset = last_offset

    def end_first_pass(self) -> None:
        """Begin again at the start of the log."""
        self.stop_sharing()
        self.leader_epoch = None
        self._transactions = CleanTransactions(self._aborted)

    # -- the second pass -----------------------------------------------------------------

    def begin_segment(self, base_offset: int) -> None:
        """Begin the output of a new segment."""
        self.close_output()
        self.output = CleanedSegment(base_offset, self._interval)

    @abstractmethod
    def filter(self, chunk: Chunk, latest_offset: int) -> None:
        """Add what stays of a chunk to the output. Records after `latest_offset` stay.

        Take the output before the next chunk: parts of it are in the buffer of the input.
        """

    def _note_epoch(self, batch: Batch) -> None:
        """Note whether the next batch is the first one of its leader epoch, if these are kept."""
        epoch = batch.partition_leader_epoch
        self._begins_epoch = self._keep_epoch_starts and epoch != self.leader_epoch
        self.leader_epoch = epoch

    def _keeps_deletions_of(self, batch: Batch) -> bool:
        """Return True if what a batch deletes may be outside of the log that is cleaned."""
        return batch.last_offset >= self._keep_deletions_from

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
        self.output.unchanged_bytes += batch.size
        content = memoryview(chunk)[batch.position : batch.end]
        self._put(batch, content, batch.max_timestamp)

    def _keep_header(self, batch: Batch) -> None:
        """Keep a batch without its records, if anybody needs its sequence, offset or epoch."""
        if (
            self._is_last_of_producer(batch)
            or batch.next_offset == self._upper_bound
            or self._begins_epoch
        ):
            self._put(batch, without_records(batch), batch.max_timestamp)

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
        self._put(batch, made, max_timestamp)

    def _put(self, batch: Batch, content: Buffer, max_timestamp: int) -> None:
        """Add what stays of a batch to the output."""
        self.output.add(content, batch.last_offset, max_timestamp)

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self._last_of.get(batch.producer_id)
        if last is None or batch.producer_id < 0:
            return False
        last_offset, epoch = last
        if last_offset >= 0:
            return batch.last_offset == last_offset
        return batch.is_control and batch.producer_epoch == epoch


class BatchStream:
    """The batches of a segment that comes in chunks.

    Chunks are written into two buffers in turn: while one is looked at, the next chunk is written
    in a second thread. What a chunk has of an incomplete batch is copied before the next one.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._other = bytearray()
        self._start = self._end = self._needed = 0
        self.first_offset, self.end_offset = 0, MAX_LONG
        """Batches before the one offset, and from the other on, do not count."""
        self._ahead: Callable[[], None] | None = None
        """Waits until the next chunk is in the other buffer."""
        self._expected = 0, 0
        """The size of that chunk, and how many bytes of the segment come after it."""

    def begin(self, first_offset: int = 0, end_offset: int = MAX_LONG) -> None:
        """Begin another segment; leave out batches before one offset, and from the other on."""
        self._start = self._end = self._needed = 0
        self.first_offset, self.end_offset = first_offset, end_offset
        self._forget_ahead()

    def _forget_ahead(self) -> None:
        """Wait until nothing is being read, and forget it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with suppress(OSError, CorruptBatch):
                ahead()

    def add(self, chunk: Chunk) -> bytearray:
        """Get the next bytes of the segment, and return the buffer.

        Raise CorruptBatch if the segment is too short for the next batch.
        """
        rest = self._end - self._start
        if self._expected != (chunk.size, chunk.left):
            self._forget_ahead()
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            ahead = self._write(chunk.size, chunk.fill)
        ahead()
        room = ROOM
        if rest > room:  # a large batch
            larger = bytearray(rest + chunk.size + PADDING)
            larger[rest : rest + chunk.size] = self._other[room : room + chunk.size]
            self._other, room = larger, rest
        with memoryview(self._buffer) as view:
            self._other[room - rest : room] = view[self._start : self._end]
        self._buffer, self._other = self._other, self._buffer
        self._start, self._end = room - rest, room + chunk.size
        if chunk.following is not None:
            size, fill = chunk.following
            self._expected = size, chunk.left - size
            self._ahead = start_beside(self._write(size, fill))
        if self._needed > rest + chunk.size + chunk.left:
            raise CorruptBatch(0, f"a batch of {self._needed} bytes is longer than its segment")
        return self._buffer

    def _write(self, size: int, fill: Fill) -> Callable[[], None]:
        """Return work that writes a chunk into the other buffer."""
        if not ROOM + size + PADDING <= len(self._other) <= 2 * (ROOM + size + PADDING):
            self._other = bytearray(ROOM + size + PADDING)
        target = self._other

        def write() -> None:
            with memoryview(target) as view:
                fill(view[ROOM : ROOM + size])

        return write

    @property
    def rest(self) -> tuple[int, int]:
        """How many bytes of the next batch are there, and how many it has at least."""
        return self._end - self._start, self._needed

    def resume(self, rest: bytearray, needed: int) -> None:
        """Go on after chunks that somebody else has looked at, which left this of a batch."""
        self._forget_ahead()
        self._buffer, self._start, self._end, self._needed = rest, 0, len(rest), needed

    def take(self, find: Find, left: int) -> list[int]:
        """Return where `find` says that whole batches begin, and keep the rest.

        Their CRCs are not checked, and those that do not count are among them.
        """
        if self._end - self._start < self._needed:
            return []
        positions, self._start, self._needed = find(self._buffer, self._start, self._end)
        if self._needed > self._end - self._start + left:
            raise CorruptBatch(0, f"a batch of {self._needed} bytes is longer than its segment")
        return positions

    def batches(self, left: int) -> Iterator[Batch]:
        """Yield the whole batches in the buffer, with their CRCs checked, and keep the rest."""
        position, end = self._start, self._end
        if end - position < self._needed:
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
                if self.first_offset <= batch.last_offset and batch.base_offset < self.end_offset:
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


def marker_of(chunk: bytearray, batch: Batch) -> Any:
    """Return what a control batch says."""
    return read_marker(memoryview(chunk)[batch.position : batch.end])
