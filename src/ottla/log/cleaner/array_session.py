"""The work of one clean with arrays: it looks at the records of many batches together (numpy).

What stays is what `cleaning_session.py` says. It writes the same bytes as `plain_session.py`, and
is for large logs. If the first pass finds that all or none of a batch's records stay, the second
pass does not decompress or read the batch again; its CRC was checked in the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from ottla.config.definition import MAX_LONG
from ottla.log.cleaner.array_key_offsets import (
    ALL_STAY,
    NONE_STAYS,
    UNKNOWN,
    ArrayKeyOffsets,
    Selected,
)
from ottla.log.cleaner.batch_codecs import LZ4_ONE_BLOCK
from ottla.log.cleaner.batch_headers import BatchHeaders, find_batches
from ottla.log.cleaner.chunk_output import ArrayCleanedSegment, ChunkOutput
from ottla.log.cleaner.chunk_results import FoundKeys, KeptBatches
from ottla.log.cleaner.cleaning_session import Chunk, CleaningSession, marker_of
from ottla.log.cleaner.key_offsets import BatchRecords, Selection
from ottla.log.cleaner.record_arrays import Array, RecordGroup
from ottla.log.cleaner.shared_chunks import Progress, SharedChunks
from ottla.ports import Buffer
from ottla.records.batch import COMPRESSION_MASK, HEADER_SIZE, TIMESTAMP_TYPE_MASK, Batch

_BYTES_AT_ONCE: Final = 3 * 1024 * 1024
"""How many bytes of decompressed records are looked at together."""


class _State(NamedTuple):
    """What is known about the batches of a chunk in the second pass."""

    data: bytearray
    headers: BatchHeaders
    output: ChunkOutput
    begin_epoch: Array
    """True for the first batch of each leader epoch, if these are kept."""
    may_keep_header: Array
    """True for batches whose header may be needed although none of their records stays."""


class ArraySession(CleaningSession):
    """The state of one clean between its tasks."""

    offsets: ArrayKeyOffsets
    output: ArrayCleanedSegment

    def __init__(self, fields: dict[str, Any], producers: Buffer, aborted: Buffer) -> None:
        super().__init__(fields, producers, aborted)
        seed = bytes.fromhex(fields["seed"])
        self.sharing = SharedChunks(self)
        self.offsets = ArrayKeyOffsets(fields["map_bytes"], fields["load_factor"], seed)

    # -- the first pass ------------------------------------------------------------------

    def add_keys(self, chunk: Chunk) -> None:
        """Collect the keys of a chunk of the dirty part; see `CleaningSession.add_keys`."""
        self._collect_keys(chunk)
        if chunk.following is None:
            self.offsets.settle()

    def _collect_keys(self, chunk: Chunk) -> None:
        data = self._input.add(chunk)
        headers = self._headers(data, chunk)
        if not len(headers):
            return
        headers.check_crcs(np.arange(len(headers)))
        has_data, _ = self._follow_transactions(data, headers)
        for numbers, group in self._groups(data, headers, np.flatnonzero(has_data)):
            added = self.offsets.collect(group, self._first_dirty)
            if added < len(numbers):
                self.is_full = True
                if numbers[added]:
                    self._was_read(int(headers.last_offsets[numbers[added] - 1]))
                return
        self._was_read(int(headers.last_offsets[-1]))

    def find_keys(self, data: bytearray, headers: BatchHeaders) -> list[FoundKeys]:
        """Return the keys of batches without transactions. This changes nothing here."""
        headers.check_crcs(np.arange(len(headers)))
        numbers = np.flatnonzero(headers.counts > 0)
        groups = self._groups(data, headers, numbers)
        return [self.offsets.find(group, self._first_dirty) for _, group in groups]

    def take_keys(self, found: Iterable[FoundKeys], last_offset: int) -> bool:
        """Take the keys of batches up to an offset, or none of them: False if the map is full."""
        groups = list(found)
        self.offsets.begin_marks(self._first_dirty)
        if not self.offsets.has_room_for(sum(each.most for each in groups)):
            return False
        for each in groups:
            self.offsets.take(each)
        self._was_read(last_offset)
        return True

    # -- the second pass -----------------------------------------------------------------

    def begin_segment(self, base_offset: int) -> None:
        """Begin the output of a new segment."""
        super().begin_segment(base_offset)
        self.output = ArrayCleanedSegment(base_offset, self._interval)

    def filter(self, chunk: Chunk, latest_offset: int) -> None:
        """Add what stays of a chunk to the output; see `CleaningSession.filter`."""
        data = self._input.add(chunk)
        headers = self._headers(data, chunk)
        if len(headers):
            self.output.add_all(*self.select(data, headers, latest_offset))

    def select(
        self, data: bytearray, headers: BatchHeaders, latest_offset: int
    ) -> tuple[list[Buffer], KeptBatches]:
        """Return the bytes of what stays of batches, in pieces, and what it is."""
        self.records_read += int(headers.counts.sum())
        verdicts, are_marked = self._verdicts(headers, latest_offset)
        headers.check_crcs(np.flatnonzero((verdicts == UNKNOWN) & ~are_marked))
        has_data, unused = self._follow_transactions(data, headers)
        verdicts[~has_data] = NONE_STAYS
        state = self._begin_chunk(data, headers)
        self._put_known(state, verdicts, unused)
        unknown = np.flatnonzero(verdicts == UNKNOWN)
        for numbers, group in self._groups(data, headers, unknown, are_marked):
            if are_marked[numbers[0]]:
                selected = self.offsets.select_marked(group)
            else:
                selected = self.offsets.select(group, latest_offset)
            self._put_selected(state, numbers, group, selected)
        return state.output.kept()

    def _verdicts(self, headers: BatchHeaders, latest_offset: int) -> tuple[Array, Array]:
        """Return what is known about the batches, and whether there are marks for each."""
        firsts, lasts = headers.base_offsets, headers.last_offsets
        are_marked = self.offsets.are_marked(firsts, lasts, headers.counts, latest_offset)
        are_marked &= ~headers.are_control
        verdicts = np.full(len(headers), UNKNOWN, np.int8)
        chosen = np.flatnonzero(are_marked)
        verdicts[chosen] = self.offsets.verdicts(firsts[chosen], lasts[chosen])
        return verdicts, are_marked

    def _begin_chunk(self, data: bytearray, headers: BatchHeaders) -> _State:
        begin_epoch = self._begin_epochs(headers)
        may_keep_header = (headers.producer_ids >= 0) | headers.are_control | begin_epoch
        may_keep_header |= headers.last_offsets + 1 == self._upper_bound
        self._chunk_output = ChunkOutput(data, headers)
        return _State(data, headers, self._chunk_output, begin_epoch, may_keep_header)

    def _begin_epochs(self, headers: BatchHeaders) -> Array:
        """Return which batches are the first ones of their leader epochs, if these are kept."""
        epochs = headers.leader_epochs
        begin: Array = np.ones(len(headers), bool)
        begin[1:] = epochs[1:] != epochs[:-1]
        begin[0] = self.leader_epoch is None or epochs[0] != self.leader_epoch
        self.leader_epoch = int(epochs[-1])
        begin &= self._keep_epoch_starts
        return begin

    def _put_known(self, state: _State, verdicts: Array, unused: set[int]) -> None:
        """Put what stays of batches that need no look at their records into the output.

        `unused` are markers that nobody needs.
        """
        headers = state.headers
        all_stay = verdicts == ALL_STAY
        state.output.keep(all_stay)
        self.records_kept += int(headers.counts[all_stay].sum())
        for number in np.flatnonzero((verdicts == NONE_STAYS) & state.may_keep_header).tolist():
            batch = headers.batch(number)
            self._begins_epoch = bool(state.begin_epoch[number])
            if batch.is_control:
                self._filter_control(state.data, batch, number in unused)
            else:
                self._keep_header(batch)

    def _put_selected(
        self, state: _State, numbers: Array, group: RecordGroup, selected: Selected
    ) -> None:
        """Put what was selected of batches into the output."""
        headers, kept = state.headers, selected.kept
        set_horizons = selected.have_tombstones & ~headers.have_delete_horizon[numbers]
        set_horizons &= headers.last_offsets[numbers] < self._keep_deletions_from
        are_whole = (kept == group.counts) & ~set_horizons
        state.output.keep(numbers[are_whole])
        have_fewer = (kept > 0) & ~are_whole & ~set_horizons
        if have_fewer.any():
            self._put_fewer(state, numbers, group, selected, np.flatnonzero(have_fewer))
        self.records_kept += int(kept[~set_horizons].sum())
        others = set_horizons | ((kept == 0) & state.may_keep_header[numbers])
        for at in np.flatnonzero(others).tolist():
            number = int(numbers[at])
            self._begins_epoch = bool(state.begin_epoch[number])
            self._filter_data(state.data, headers.batch(number), *_one(selected, group, at))

    def _put_fewer(
        self,
        state: _State,
        numbers: Array,
        group: RecordGroup,
        selected: Selected,
        chosen: Array,
    ) -> None:
        """Put batches with fewer records into the output. `chosen` of the batches are such."""
        headers, numbers, kept = state.headers, numbers[chosen], selected.kept[chosen]
        timestamps = headers.max_timestamps[numbers]
        creates = headers.attributes[numbers] & TIMESTAMP_TYPE_MASK == 0
        deltas = selected.max_timestamp_deltas[chosen]
        timestamps[creates] = (headers.base_timestamps[numbers] + deltas)[creates]
        firsts, uptos = selected.first_runs[chosen], selected.first_runs[chosen + 1]
        view = memoryview(group.data)
        runs = map(slice, selected.run_starts.tolist(), selected.run_ends.tolist())
        pieces = list(map(view.__getitem__, runs))
        limits = zip(firsts.tolist(), uptos.tolist(), strict=True)
        parts: list[list[Buffer]] = [[*pieces[first:upto]] for first, upto in limits]
        codecs = headers.attributes[numbers] & COMPRESSION_MASK
        if codecs[0]:
            contents = [b"".join(part) for part in parts]
            made = self._codecs.compress_all(codecs.tolist(), contents)
            sizes = np.array([len(each) for each in made])
            parts = [[each] for each in made]
        else:
            ends = np.cumsum(selected.run_ends - selected.run_starts)
            before = np.append(0, ends)
            sizes = before[uptos] - before[firsts]
        content, ends = headers.with_fewer_records(numbers, kept, timestamps, parts, sizes)
        state.output.put(numbers, content, ends, timestamps)

    def _put(self, batch: Batch, content: Buffer, max_timestamp: int) -> None:
        self._chunk_output.put_one(batch.position, content, max_timestamp)

    # -- both ----------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """Where the next chunk begins."""
        return Progress(*self._input.rest, self.leader_epoch)

    @property
    def can_share(self) -> bool:
        """Whether all batches of the segment count."""
        return (self._input.first_offset, self._input.end_offset) == (0, MAX_LONG)

    def resume(self, position: int, progress: Progress) -> None:
        """Go on at a position of the segment, after chunks that were shared."""
        assert self.file is not None
        rest = bytearray(progress.rest)
        self.file.read_into(memoryview(rest), position - progress.rest)
        self._input.resume(rest, progress.needed)
        self.leader_epoch = progress.leader_epoch
        self.offsets.settle()

    def _headers(self, data: bytearray, chunk: Chunk) -> BatchHeaders:
        """Return the batches of a chunk that count."""
        headers = BatchHeaders(data, self._input.take(find_batches, chunk.left))
        return headers.between(self._input.first_offset, self._input.end_offset)

    def _groups(
        self, data: bytearray, headers: BatchHeaders, numbers: Array, kinds: Array | None = None
    ) -> Iterator[tuple[Array, RecordGroup]]:
        """Yield batches of one kind that are looked at together, and their records."""
        is_packed = headers.attributes[numbers] & COMPRESSION_MASK != 0
        limits = is_packed[1:] != is_packed[:-1]
        if kinds is not None:
            limits |= kinds[numbers][1:] != kinds[numbers][:-1]
        horizons = headers.base_timestamps
        keeps = ~headers.have_delete_horizon | (self._now_ms < horizons)
        keeps |= headers.last_offsets >= self._keep_deletions_from
        for some in np.split(numbers, np.flatnonzero(limits) + 1):
            if not len(some):
                continue
            if headers.attributes[some[0]] & COMPRESSION_MASK:
                yield from self._decompressed(data, headers, some, keeps)
            else:
                starts, ends = headers.starts[some] + HEADER_SIZE, headers.ends[some]
                yield some, _group(data, headers, some, keeps, starts, ends)

    def _decompressed(
        self, data: bytearray, headers: BatchHeaders, numbers: Array, keeps: Array
    ) -> Iterator[tuple[Array, RecordGroup]]:
        """Yield compressed batches that are looked at together, and their records."""
        codecs = self._codecs
        if headers.have_one_block(numbers):
            yield from self._of_blocks(data, headers, numbers, keeps)
            return
        kinds = (headers.attributes[numbers] & COMPRESSION_MASK).tolist()
        starts = (headers.starts[numbers] + HEADER_SIZE).tolist()
        stops = headers.ends[numbers].tolist()
        found: list[tuple[int, int]] = []
        first = 0
        codecs.forget()
        view = memoryview(data)
        frames = [view[start:stop] for start, stop in zip(starts, stops, strict=True)]
        for at, place in enumerate(codecs.decompress_each(kinds, frames)):
            found.append(place)
            if place[1] >= _BYTES_AT_ONCE or at + 1 == len(kinds):
                some, places = numbers[first : at + 1], np.array(found, np.int64)
                group = _group(codecs.arena, headers, some, keeps, places[:, 0], places[:, 1])
                yield some, group
                codecs.forget()
                found, first = [], at + 1

    def _of_blocks(
        self, data: bytearray, headers: BatchHeaders, numbers: Array, keeps: Array
    ) -> Iterator[tuple[Array, RecordGroup]]:
        """Yield the same for batches that are LZ4 frames of one block each."""
        codecs, view = self._codecs, memoryview(data)
        before, after = LZ4_ONE_BLOCK
        starts = (headers.starts[numbers] + HEADER_SIZE + before).tolist()
        ends = (headers.ends[numbers] - after).tolist()
        first = 0
        while first < len(starts):
            codecs.forget()
            found = codecs.decompress_blocks(view, starts[first:], ends[first:], _BYTES_AT_ONCE)
            some, places = numbers[first : first + len(found)], np.array(found, np.int64)
            yield some, _group(codecs.arena, headers, some, keeps, places[:, 0], places[:, 1])
            first += len(found)

    def _follow_transactions(
        self, data: bytearray, headers: BatchHeaders
    ) -> tuple[Array, set[int]]:
        """Return which batches have data that counts, and which ones are unused markers."""
        has_data = headers.counts > 0
        unused: set[int] = set()
        special = np.flatnonzero(headers.are_control | headers.are_transactional)
        for number in special.tolist():
            batch = headers.batch(number)
            if batch.is_control:
                has_data[number] = False
                marker, must_stay = marker_of(data, batch), self._keeps_deletions_of(batch)
                if self._transactions.is_marker_unused(batch, marker, must_stay=must_stay):
                    unused.add(number)
            elif self._transactions.is_aborted(batch):
                has_data[number] = False
        return has_data, unused


def _group(
    data: bytearray, headers: BatchHeaders, numbers: Array, keeps: Array, starts: Array, ends: Array
) -> RecordGroup:
    return RecordGroup(
        data,
        starts,
        ends,
        headers.counts[numbers],
        headers.base_offsets[numbers],
        headers.last_offsets[numbers],
        keeps[numbers],
    )


def _one(selected: Selected, group: RecordGroup, at: int) -> tuple[BatchRecords, Selection]:
    """Return the records of one of the batches, and what was selected of them."""
    count = int(group.counts[at])
    whole = BatchRecords(
        group.data,
        int(group.starts[at]),
        int(group.ends[at]),
        int(group.base_offsets[at]),
        count,
        bool(group.keep_tombstones[at]),
    )
    kept = int(selected.kept[at])
    content = None
    if kept < count:
        runs = slice(int(selected.first_runs[at]), int(selected.first_runs[at + 1]))
        ranges = zip(
            selected.run_starts[runs].tolist(), selected.run_ends[runs].tolist(), strict=True
        )
        content = b"".join([group.data[start:end] for start, end in ranges])
    largest = int(selected.max_timestamp_deltas[at])
    return whole, Selection(kept, bool(selected.have_tombstones[at]), largest, content)
