"""The last offset of each key of a range of a log, in arrays (numpy).

A key takes 24 bytes: a hash of 16 bytes (`key_hash.py`) and an offset. The table is searched from
the slot that the hash says to the next free one, for all keys of many batches at once.

numpy is optional (the extra `compact`). It is imported in a helper process only, and only for logs
that are large enough that its start pays (`cleaning_session.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from ottla.log.cleaner.key_hash import KeyHash
from ottla.log.cleaner.key_offsets import BatchRecords, Selection
from ottla.log.cleaner.record_arrays import PADDING, Array, RecordArrays, read_records

BYTES_A_KEY: Final = 24
_FIRST_SLOTS: Final = 1 << 14
_GROW_FROM: Final = 0.6
"""How full the table gets before it grows."""
_ROWS_A_MOVE: Final = 1 << 15
_NEVER: Final = -(2**63)
_U: Any = np.uint64
_HALF: Final = _U(32)


class ArrayKeyOffsets:
    """The same as `KeyOffsets`, in less memory and time."""

    def __init__(self, memory_bytes: int, load_factor: float, seed: bytes) -> None:
        self._most_slots = max(memory_bytes // BYTES_A_KEY, 2)
        self._load_factor = load_factor
        slots = min(_FIRST_SLOTS, self._most_slots)
        self._table = np.zeros((slots, 3), np.uint64)  # a hash in two halves, and an offset
        self._keys = 0
        self._hash = KeyHash(seed)

    def __len__(self) -> int:
        return self._keys

    @property
    def utilization(self) -> float:
        """How much of the map is used, from 0 to 1."""
        return self._keys / max(self._limit(self._most_slots), 1)

    def _limit(self, slots: int) -> int:
        """Return how many keys a table of so many slots may have."""
        share = self._load_factor if slots == self._most_slots else _GROW_FROM
        return min(int(slots * share), slots - 1)  # a search ends at a free slot

    # -- the first pass ------------------------------------------------------------------

    def add_batches(self, batches: Sequence[BatchRecords], first_offset: int) -> int:
        """Add the records of batches from an offset on; return how many batches were added whole.

        If that is not all, the map is full.
        """
        most = sum(batch.record_count for batch in batches)
        self._grow(most)
        if self._keys + most <= self._limit(len(self._table)):
            is_whole = self._add(batches, first_offset)
            assert is_whole, "there is room for each of them"
            return len(batches)
        for number, batch in enumerate(batches):
            if not self._add([batch], first_offset):
                return number
        return len(batches)

    def _add(self, batches: Sequence[BatchRecords], first_offset: int) -> bool:
        if not batches:
            return True
        data, records = _arrays(batches)
        offsets = _offsets(batches, records)
        chosen = np.flatnonzero((records.key_lengths >= 0) & (offsets >= first_offset))
        high, low = self._hash.of(data, records.key_starts[chosen], records.key_lengths[chosen])
        return self._put(high, low, offsets[chosen].astype(np.uint64))

    def _put(self, high: Array, low: Array, offsets: Array) -> bool:
        """Put keys into the table, in the order of their offsets; False if it is full."""
        table = self._table
        slots = _slots(high, len(table))
        while len(slots):
            rows = table.take(slots, axis=0)
            is_free = (rows[:, 0] == 0) & (rows[:, 1] == 0)
            free = np.flatnonzero(is_free)
            if len(free):
                wanted = slots[free]
                table[wanted, 2] = free  # of the keys that want one slot, the last one gets it
                claims = int((table[wanted, 2] == free.astype(np.uint64)).sum())
                if self._keys + claims > self._limit(len(table)):
                    table[wanted, 2] = 0
                    return False
                self._keys += claims
                table[wanted, 0] = high[free]
                table[wanted, 1] = low[free]
                # Both halves are of the last one: assignments to equal slots happen in order.
                rows[free] = table.take(wanted, axis=0)
            is_there = (rows[:, 0] == high) & (rows[:, 1] == low)
            # Offsets rise, and of equal slots the last one counts.
            table[slots[is_there], 2] = offsets[is_there]
            rest = np.flatnonzero(~is_there)
            high, low, offsets = high[rest], low[rest], offsets[rest]
            slots = slots[rest] + 1
            slots[slots == len(table)] = 0
        return True

    def _grow(self, more: int) -> None:
        """Enlarge the table for more keys. A small one is faster: more of it is in the caches."""
        slots = len(self._table)
        while self._keys + more > self._limit(slots) and slots < self._most_slots:
            slots = min(2 * slots, self._most_slots)
        if slots == len(self._table):
            return
        old, self._table, self._keys = self._table, np.zeros((slots, 3), np.uint64), 0
        for start in range(0, len(old), _ROWS_A_MOVE):
            rows = old[start : start + _ROWS_A_MOVE]
            rows = rows[(rows[:, 0] != 0) | (rows[:, 1] != 0)]
            assert self._put(rows[:, 0], rows[:, 1], rows[:, 2])

    # -- the second pass -----------------------------------------------------------------

    def select_batches(
        self, batches: Sequence[BatchRecords], latest_offset: int
    ) -> list[Selection]:
        """Return the records of batches that stay; see `KeyOffsets.select_batches`."""
        if not batches:
            return []
        data, records = _arrays(batches)
        offsets = _offsets(batches, records)
        stays = offsets > latest_offset
        keeps_tombstones = np.array([batch.keep_tombstones for batch in batches])
        asked = ~stays & (records.key_lengths >= 0)
        asked &= ~records.is_tombstone | keeps_tombstones[records.batches]
        chosen = np.flatnonzero(asked)
        high, low = self._hash.of(data, records.key_starts[chosen], records.key_lengths[chosen])
        stays[chosen] = offsets[chosen] >= self._last_offsets(high, low)
        return _selections(data, batches, records, stays)

    def _last_offsets(self, high: Array, low: Array) -> Array:
        """Return the last offset of each key, -1 if it is not in the map."""
        table = self._table
        slots = _slots(high, len(table))
        found = np.full(len(slots), -1, np.int64)
        left = np.arange(len(slots))
        while len(left):
            rows = table.take(slots, axis=0)
            is_there = (rows[:, 0] == high) & (rows[:, 1] == low)
            found[left[is_there]] = rows[is_there, 2].astype(np.int64)
            rest = np.flatnonzero(~is_there & ((rows[:, 0] != 0) | (rows[:, 1] != 0)))
            left, high, low = left[rest], high[rest], low[rest]
            slots = slots[rest] + 1
            slots[slots == len(table)] = 0
        return found


def _slots(high: Array, count: int) -> Array:
    slots: Array = (((high >> _HALF) * _U(count)) >> _HALF).astype(np.int64)
    return slots


def _arrays(batches: Sequence[BatchRecords]) -> tuple[memoryview, RecordArrays]:
    """Return the records of batches in one buffer, and where they are."""
    data = batches[0].data
    starts = [batch.start for batch in batches]
    ends = [batch.end for batch in batches]
    if ends[-1] + len(PADDING) > len(data) or any(batch.data is not data for batch in batches):
        views = [memoryview(batch.data)[batch.start : batch.end] for batch in batches]
        data = b"".join([*views, PADDING])
        sizes = [batch.end - batch.start for batch in batches]
        ends = list(accumulate(sizes))
        starts = [end - size for end, size in zip(ends, sizes, strict=True)]
    view = memoryview(data)
    return view, read_records(view, starts, ends, [batch.record_count for batch in batches])


def _offsets(batches: Sequence[BatchRecords], records: RecordArrays) -> Array:
    bases = np.array([batch.base_offset for batch in batches], np.int64)
    offsets: Array = bases[records.batches] + records.offset_deltas
    return offsets


def _selections(
    data: memoryview, batches: Sequence[BatchRecords], records: RecordArrays, stays: Array
) -> list[Selection]:
    firsts = records.firsts
    kept = np.add.reduceat(stays.astype(np.int64), firsts)
    tombstones = np.add.reduceat((stays & records.is_tombstone).astype(np.int64), firsts)
    deltas = np.where(stays, records.timestamp_deltas, _NEVER)
    largest = np.maximum.reduceat(deltas, firsts).tolist()
    runs = _runs(records, stays, kept)
    found = []
    for number, (count, deleted, batch) in enumerate(
        zip(kept.tolist(), tombstones.tolist(), batches, strict=True)
    ):
        content = None
        if count != batch.record_count:
            content = b"".join([data[start:end] for start, end in runs.get(number, ())])
        found.append(Selection(count, deleted > 0, largest[number], content))
    return found


def _runs(records: RecordArrays, stays: Array, kept: Array) -> dict[int, list[tuple[int, int]]]:
    """Return the ranges of bytes that stay of each batch that loses a part of its records."""
    counts = np.diff(records.firsts, append=len(stays))
    chosen = stays & (kept != counts)[records.batches]
    is_first = np.zeros(len(stays) + 1, bool)
    is_first[records.firsts] = True
    before = np.zeros(len(stays), bool)
    before[1:] = chosen[:-1]
    after = np.zeros(len(stays), bool)
    after[:-1] = chosen[1:]
    begins = np.flatnonzero(chosen & (~before | is_first[:-1]))
    ends = np.flatnonzero(chosen & (~after | is_first[1:]))
    runs: dict[int, list[tuple[int, int]]] = {}
    for batch, start, end in zip(
        records.batches[begins].tolist(),
        records.starts[begins].tolist(),
        records.ends[ends].tolist(),
        strict=True,
    ):
        runs.setdefault(batch, []).append((start, end))
    return runs
