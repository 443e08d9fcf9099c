"""The work of one clean with arrays: it looks at the records of many batches together (numpy).

What stays is what `cleaning_session.py` says. It writes the same bytes as `plain_session.py`, and
is for large logs. Batches of which the first pass knows that everything or nothing stays are not
decompressed or looked at again in the second pass; their CRC was checked in the first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ottla.log.cleaner.array_key_offsets import (
    ALL_STAY,
    NONE_STAYS,
    UNKNOWN,
    ArrayKeyOffsets,
    Selected,
)
from ottla.log.cleaner.batch_codecs import LZ4_ONE_BLOCK
from ottla.log.cleaner.batch_headers import BatchHeaders, find_batches
from ottla.log.cleaner.cleaned_batches import finish_batch
from ottla.log.cleaner.cleaning_session import Chunk, CleaningSession, marker_of
from ottla.log.cleaner.key_offsets import BatchRecords, Selection
from ottla.log.cleaner.record_arrays import Array, RecordGroup
from ottla.ports import Buffer
from ottla.records.batch import COMPRESSION_MASK, HEADER_SIZE, TIMESTAMP_TYPE_MASK

_BYTES_AT_ONCE: Final = 2 * 1024 * 1024
"""How many bytes of decompressed records are looked at together."""


class _Known:
    """The batches of a chunk of which something may be written without a look at their records."""

    def __init__(
        self,
        headers: BatchHeaders,
        verdicts: Array,
        unused: set[int],
        begin_epoch: Array,
        numbers: list[int],
    ) -> None:
        self.headers = headers
        self.verdicts = verdicts
        self.unused = unused
        """Which batches are markers that nobody needs."""
        self.begin_epoch = begin_epoch
        self.numbers = numbers
        self.at = 0
        """How many of them have been written."""

    @property
    def next_number(self) -> int:
        """The next batch to write; a number after all others if there is none."""
        return self.numbers[self.at] if self.at < len(self.numbers) else len(self.headers)


class ArraySession(CleaningSession):
    """The state of one clean between its tasks."""

    offsets: ArrayKeyOffsets

    def __init__(self, fields: dict[str, Any], producers: Buffer, aborted: Buffer) -> None:
        super().__init__(fields, producers, aborted)
        seed = bytes.fromhex(fields["seed"])
        self.offsets = ArrayKeyOffsets(fields["map_bytes"], fields["load_factor"], seed)

    # -- the first pass ------------------------------------------------------------------

    def add_keys(self, chunk: Chunk) -> None:
        """Collect the keys of a chunk of the dirty part; see `CleaningSession.add_keys`."""
        data = self._input.add(chunk)
        headers = self._headers(data, chunk)
        if not len(headers):
            return
        headers.check_crcs(np.arange(len(headers)))
        has_data, _ = self._follow_transactions(data, headers)
        for numbers, group in self._groups(data, headers, np.flatnonzero(has_data)):
            added = self.offsets.add(group, self._first_dirty)
            if added < len(numbers):
                self.is_full = True
                if numbers[added]:
                    self._was_read(int(headers.last_offsets[numbers[added] - 1]))
                return
        self._was_read(int(headers.last_offsets[-1]))

    # -- the second pass -----------------------------------------------------------------

    def filter(self, chunk: Chunk, latest_offset: int) -> None:
        """Add what stays of a chunk to the output; see `CleaningSession.filter`."""
        data = self._input.add(chunk)
        headers = self._headers(data, chunk)
        if not len(headers):
            return
        self.records_read += int(headers.counts.sum())
        verdicts, are_marked = self._verdicts(headers, latest_offset)
        headers.check_crcs(np.flatnonzero(verdicts == UNKNOWN))
        has_data, unused = self._follow_transactions(data, headers)
        verdicts[~has_data] = NONE_STAYS
        begin_epoch = self._begin_epochs(headers)
        to_write = self._to_write(headers, verdicts, begin_epoch)
        known = _Known(headers, verdicts, unused, begin_epoch, to_write)
        unknown = np.flatnonzero(verdicts == UNKNOWN)
        for numbers, group in self._groups(data, headers, unknown, are_marked):
            if are_marked[numbers[0]]:
                selected = self.offsets.select_marked(group)
            else:
                selected = self.offsets.select(group, latest_offset)
            self._write_selected(data, known, numbers, group, selected)
        self._write_known(data, known, len(headers))

    def _verdicts(self, headers: BatchHeaders, latest_offset: int) -> tuple[Array, Array]:
        """Return what is known about the batches, and whether there are marks for each."""
        firsts, lasts = headers.base_offsets, headers.last_offsets
        are_marked = self.offsets.are_marked(firsts, lasts, headers.counts, latest_offset)
        are_marked &= ~headers.are_control
        verdicts = np.full(len(headers), UNKNOWN, np.int8)
        chosen = np.flatnonzero(are_marked)
        verdicts[chosen] = self.offsets.verdicts(firsts[chosen], lasts[chosen])
        return verdicts, are_marked

    def _begin_epochs(self, headers: BatchHeaders) -> Array:
        """Return which batches are the first ones of their leader epochs, if these are kept."""
        epochs = headers.leader_epochs
        begin: Array = np.ones(len(headers), bool)
        begin[1:] = epochs[1:] != epochs[:-1]
        begin[0] = self._leader_epoch is None or epochs[0] != self._leader_epoch
        self._leader_epoch = int(epochs[-1])
        begin &= self._keep_epoch_starts
        return begin

    def _to_write(self, headers: BatchHeaders, verdicts: Array, begin_epoch: Array) -> list[int]:
        """Return the batches of which something may be written without a look at their records."""
        may_keep_header = (headers.producer_ids >= 0) | headers.are_control | begin_epoch
        may_keep_header |= headers.last_offsets + 1 == self._upper_bound
        is_written = (verdicts == ALL_STAY) | ((verdicts == NONE_STAYS) & may_keep_header)
        numbers: list[int] = np.flatnonzero(is_written).tolist()
        return numbers

    def _write_known(self, data: bytearray, known: _Known, upto: int) -> None:
        """Write what stays of the batches before `upto` that need no look at their records."""
        while (number := known.next_number) < upto:
            known.at += 1
            batch = known.headers.batch(number)
            self._begins_epoch = bool(known.begin_epoch[number])
            if batch.is_control:
                self._filter_control(data, batch, number in known.unused)
            elif known.verdicts[number] == ALL_STAY:
                self._keep(data, batch)
            else:
                self._keep_header(batch)

    def _write_selected(
        self,
        data: bytearray,
        known: _Known,
        numbers: Array,
        group: RecordGroup,
        selected: Selected,
    ) -> None:
        """Write what was selected of batches, and the others before each of them."""
        headers = known.headers
        kept = np.array(selected.kept)
        timestamps = headers.max_timestamps[numbers]
        deltas = np.array(selected.max_timestamp_deltas)
        creates = (headers.attributes[numbers] & TIMESTAMP_TYPE_MASK == 0) & (kept > 0)
        timestamps[creates] = headers.base_timestamps[numbers][creates] + deltas[creates]
        heads = headers.with_fewer_records(numbers, kept, timestamps)
        is_rewritten = (kept > 0) & (kept < group.counts)
        is_rewritten &= ~np.array(selected.have_tombstones)
        lasts, largest = headers.last_offsets[numbers].tolist(), timestamps.tolist()
        rewritten = is_rewritten.tolist()
        output = self.output
        next_known = known.next_number
        records = _runs(group, selected)
        if headers.attributes[numbers[0]] & COMPRESSION_MASK:
            some = np.flatnonzero(is_rewritten).tolist()
            codecs = (headers.attributes[numbers[some]] & COMPRESSION_MASK).tolist()
            contents = [b"".join(records[at]) for at in some]
            made = self._codecs.compress_all(codecs, contents)
            for at, content in zip(some, made, strict=True):
                records[at] = [content]
        for at, number in enumerate(numbers.tolist()):
            if number > next_known:
                self._write_known(data, known, number)
                next_known = known.next_number
            if rewritten[at]:
                head = heads[at * HEADER_SIZE : (at + 1) * HEADER_SIZE]
                batch = bytearray().join((head, *records[at]))
                finish_batch(batch)
                output.add(batch, lasts[at], largest[at])
            else:
                self._begins_epoch = bool(known.begin_epoch[number])
                one = _one(selected, group, at, records[at])
                self._filter_data(data, headers.batch(number), *one)
        self.records_kept += int(kept[is_rewritten].sum())

    # -- both ----------------------------------------------------------------------------

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


def _runs(group: RecordGroup, selected: Selected) -> list[list[Buffer]]:
    """Return the bytes that are left of each batch, in pieces."""
    view, firsts = memoryview(group.data), selected.first_runs
    runs = map(slice, selected.run_starts, selected.run_ends)
    pieces = list(map(view.__getitem__, runs))
    return [[*pieces[first:upto]] for first, upto in pairwise(firsts)]


def _one(
    selected: Selected, group: RecordGroup, at: int, records: list[Buffer]
) -> tuple[BatchRecords, Selection]:
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
    kept = selected.kept[at]
    content = None if kept == count else b"".join(records)
    largest = selected.max_timestamp_deltas[at]
    return whole, Selection(kept, selected.have_tombstones[at], largest, content)
