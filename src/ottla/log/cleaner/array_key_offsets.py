"""The last offset of each key of a range of a log, in arrays (numpy).

A key takes 24 bytes: a hash of 16 bytes (`key_hash.py`) and an offset. The table is searched from
the slot that the hash says to the next free one, for all keys of many batches at once.

The first pass also marks each offset whose record is not the last one of its key. So the second
pass need not look for the keys of what the first pass has seen, and it need not look at all at the
records of a batch if none or all of them stay. There are marks for a limited number of
offsets; for those after them the keys are looked for.

numpy is optional (the extra `compact`). It is imported in a helper process only, and only for logs
that are large enough that its start pays (`cleaning_session.py`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ottla.log.cleaner.chunk_results import FoundKeys
from ottla.log.cleaner.key_hash import KeyHash
from ottla.log.cleaner.offset_marks import OffsetMarks
from ottla.log.cleaner.record_arrays import (
    Array,
    RecordArrays,
    RecordGroup,
    RecordPlaces,
    find_records,
    read_records,
    read_timestamp_deltas,
)

BYTES_A_KEY: Final = 24
_FIRST_SLOTS: Final = 1 << 14
_GROW_FROM: Final = 0.45
"""How full the table gets before it grows."""
_ROWS_A_MOVE: Final = 1 << 15
_KEYS_TOGETHER: Final = 1 << 14
"""How many keys are put into the table together, if they come in smaller numbers."""
_NEVER: Final = -(2**63)
_MOST_MARKS: Final = 64 * 1024 * 1024
"""How many offsets have marks: twice 8 MiB of memory at most."""
_MOST_COUNTED: Final = 8 * 1024 * 1024
"""Over how many offsets marks are counted at once. Each takes a byte of memory meanwhile."""

UNKNOWN: Final = 0
NONE_STAYS: Final = 1
ALL_STAY: Final = 2
_U: Any = np.uint64
_HALF: Final = _U(32)


class Selected(NamedTuple):
    """What is left of the records of some batches: an element for each batch."""

    kept: Array
    """How many records are left."""
    have_tombstones: Array
    """True if some of those that are left delete their keys."""
    max_timestamp_deltas: Array
    """The largest of those that are left; of no meaning if none is left."""
    first_runs: Array
    """The number of its first run, and one more element: how many runs there are."""
    run_starts: Array
    """Where runs of records that are left begin in the data."""
    run_ends: Array


class ArrayKeyOffsets:
    """The same as `KeyOffsets`, in less memory and time."""

    def __init__(self, memory_bytes: int, load_factor: float, seed: bytes) -> None:
        self._most_slots = max(memory_bytes // BYTES_A_KEY, 2)
        self._load_factor = load_factor
        self._make_table(min(_FIRST_SLOTS, self._most_slots))
        self._collected: list[tuple[Array, Array, Array]] = []
        """Keys that are not in the table yet, and their offsets."""
        self._aside = 0
        """How many they are at most."""
        self._hash = KeyHash(seed)
        self._superseded = OffsetMarks(0, 0)
        """Offsets of records to remove: others with the same keys follow, or they have no key."""
        self._tombstones = OffsetMarks(0, 0)
        self._are_marks_useful = True
        """False if somewhere records have other offsets than the header of their batch says."""

    def __len__(self) -> int:
        return self._keys

    @property
    def utilization(self) -> float:
        """How much of the map is used, from 0 to 1."""
        return self._keys / max(self._limit(self._most_slots), 1)

    def _limit(self, slots: int) -> int:
        """Return how many keys a table with this many slots may have."""
        share = self._load_factor if slots == self._most_slots else _GROW_FROM
        return min(int(slots * share), slots - 1)  # a search ends at a free slot

    # -- the first pass ------------------------------------------------------------------

    def add(self, group: RecordGroup, first_offset: int) -> int:
        """Add the records of batches from an offset on; return how many batches were added whole.

        If that is not all, the map is full. `first_offset` is the same each time.
        """
        added = self.collect(group, first_offset)
        self.settle()
        return added

    def collect(self, group: RecordGroup, first_offset: int) -> int:
        """Do what `add` does, but keep some keys aside until `settle`: many are faster together."""
        self.begin_marks(first_offset)
        if self.has_room_for(int(group.counts.sum())):
            self.take(self.find(group, first_offset))
            return len(group.counts)
        for number in range(len(group.counts)):
            one = RecordGroup(group.data, *(each[number : number + 1] for each in group[1:]))
            found = self.find(one, first_offset)
            self._mark(found)
            if not self._put(found.highs, found.lows, found.offsets):
                return number
        return len(group.counts)

    def begin_marks(self, first_offset: int) -> None:
        """Have marks from an offset on, unless there are some."""
        if not self._superseded.end:
            self._superseded = OffsetMarks(first_offset, _MOST_MARKS)
            self._tombstones = OffsetMarks(first_offset, _MOST_MARKS)

    def has_room_for(self, most: int) -> bool:
        """Return True if so many keys fit into the table; make it larger if need be."""
        if self._keys + self._aside + most > self._limit(len(self._highs)):
            self.settle()
            self._grow(most)
        return self._keys + self._aside + most <= self._limit(len(self._highs))

    def take(self, found: FoundKeys) -> None:
        """Keep keys for which there is room aside, or put them into the table."""
        self._mark(found)
        self._collected.append((found.highs, found.lows, found.offsets))
        self._aside += found.most
        if self._aside >= _KEYS_TOGETHER:
            self.settle()

    def _mark(self, found: FoundKeys) -> None:
        """Mark the records that are tombstones, and those that go because they have no key."""
        self._tombstones.add(found.tombstones)
        self._superseded.add(found.without_key)
        self._are_marks_useful &= found.is_regular

    def settle(self) -> None:
        """Put the keys that were kept aside into the table."""
        if self._collected:
            columns = [np.concatenate(each) for each in zip(*self._collected, strict=True)]
            self._collected.clear()
            self._aside = 0
            is_whole = self._put(*columns)
            assert is_whole, "there is room for each of them"

    def find(self, group: RecordGroup, first_offset: int) -> FoundKeys:
        """Return the keys of batches from an offset on. This changes nothing here."""
        places = find_records(group)
        records = read_records(group, places)
        offsets, is_regular = _offsets(group, places, records)
        starts, lengths = records.key_starts, records.key_lengths
        tombstones, without_key = offsets[records.is_tombstone], offsets[:0]
        if lengths.min() < 0 or offsets.min() < first_offset:
            without_key = offsets[lengths < 0]
            chosen = np.flatnonzero((lengths >= 0) & (offsets >= first_offset))
            starts, lengths, offsets = starts[chosen], lengths[chosen], offsets[chosen]
        highs, lows = self._hash.of(group.data, starts, lengths)
        most = len(records.batches)
        return FoundKeys(highs, lows, offsets, tombstones, without_key, most, is_regular)

    def _put(self, high: Array, low: Array, offsets: Array) -> bool:
        """Put keys into the table, in the order of their offsets; False if it is full."""
        slots = _slots(high, len(self._highs))
        superseded: list[Array] = []
        is_full = False
        while True:
            highs = self._highs.take(slots)
            is_there = highs == high
            is_there &= self._lows.take(slots) == low
            there = np.flatnonzero(is_there)
            before, unused = self._set_offsets(slots.take(there), offsets.take(there))
            superseded += before, unused
            if len(there) == len(slots):
                break
            free = np.flatnonzero(highs == 0)
            if len(free):
                claimed = self._claim(slots[free], free, high, low)
                if claimed is None:
                    is_full = True
                    break
                is_there[free] = claimed
                new = free[claimed]
                superseded.append(self._set_offsets(slots[new], offsets[new])[1])
            rest = np.flatnonzero(~is_there)
            if not len(rest):
                break
            high, low, offsets = high.take(rest), low.take(rest), offsets.take(rest)
            slots = slots.take(rest) + 1
            slots[slots == len(self._highs)] = 0
        self._superseded.add(np.concatenate(superseded))
        return not is_full

    def _set_offsets(self, slots: Array, offsets: Array) -> tuple[Array, Array]:
        """Set the offsets of keys, which rise. Of equal slots the last one counts.

        Return the offsets that these slots had, and those of the new ones that do not count.
        """
        lasts = self._lasts
        before = lasts.take(slots)
        lasts[slots] = offsets
        after = lasts.take(slots)
        return before[before != after], offsets[offsets != after]

    def _claim(self, wanted: Array, numbers: Array, high: Array, low: Array) -> Array | None:
        """Give free slots to keys, each to the last one that wants it.

        Return which of them have a slot now; equal keys share one. None if the table is full.
        """
        lasts = self._lasts
        lasts[wanted] = numbers
        owners = lasts.take(wanted)
        claims = int(np.count_nonzero(owners == numbers))
        if self._keys + claims > self._limit(len(lasts)):
            return None
        self._keys += claims
        highs, lows = high.take(owners), low.take(owners)
        self._highs[wanted] = highs
        self._lows[wanted] = lows
        claimed: Array = (highs == high.take(numbers)) & (lows == low.take(numbers))
        return claimed

    def _grow(self, more: int) -> None:
        """Enlarge the table for more keys. A small one is faster: more of it is in the caches."""
        slots = len(self._highs)
        while self._keys + more > self._limit(slots) and slots < self._most_slots:
            slots = min(2 * slots, self._most_slots)
        if slots == len(self._highs):
            return
        old = self._highs, self._lows, self._lasts
        self._make_table(slots)
        for start in range(0, len(old[0]), _ROWS_A_MOVE):
            upto = start + _ROWS_A_MOVE
            used = np.flatnonzero(old[0][start:upto])
            assert self._put(*(column[start:upto].take(used) for column in old))

    def _make_table(self, slots: int) -> None:
        """Make an empty table: a column for each half of a hash, and one for offsets."""
        self._highs = np.zeros(slots, np.uint64)
        self._lows = np.zeros(slots, np.uint64)
        self._lasts = np.zeros(slots, np.int64)
        self._keys = 0

    # -- the second pass -----------------------------------------------------------------

    def are_marked(
        self, first_offsets: Array, last_offsets: Array, counts: Array, latest_offset: int
    ) -> Array:
        """Return for each batch whether there are marks for all of its records.

        `latest_offset` is as in `select`.
        """
        assert not self._collected, "the first pass is over"
        if not self._are_marks_useful:
            return np.zeros(len(counts), bool)
        end = min(self._superseded.end, latest_offset + 1)
        are: Array = (first_offsets >= self._superseded.first) & (last_offsets < end)
        are &= _are_dense(first_offsets, last_offsets, counts)
        return are

    def verdicts(self, first_offsets: Array, last_offsets: Array) -> Array:
        """Return which batches, all of which are marked, stay as they are, or not at all."""
        found = np.full(len(first_offsets), UNKNOWN, np.int8)
        if not len(found):
            return found
        starts, ends = first_offsets, last_offsets + 1
        if ends[-1] - starts[0] > _MOST_COUNTED or (starts[1:] < ends[:-1]).any():
            return found
        superseded = _count(self._superseded, starts, ends)
        tombstones = _count(self._tombstones, starts, ends)
        found[superseded == ends - starts] = NONE_STAYS
        found[(superseded == 0) & (tombstones == 0)] = ALL_STAY
        return found

    def select_marked(self, group: RecordGroup) -> Selected:
        """Return the records that stay of batches that are marked."""
        places = find_records(group)
        batches = np.repeat(np.arange(len(group.counts)), group.counts)
        offsets = np.arange(len(batches)) + (group.base_offsets - places.firsts)[batches]
        stays = ~self._superseded.are_marked(offsets)
        is_tombstone = self._tombstones.are_marked(offsets)
        if not group.keep_tombstones.all():
            stays &= ~is_tombstone | group.keep_tombstones[batches]
        return _selected(group, places, batches, stays, is_tombstone)

    def select(self, group: RecordGroup, latest_offset: int) -> Selected:
        """Return the records of batches that stay.

        Those after `latest_offset` are not in the map, and all of them stay.
        """
        places = find_records(group)
        records = read_records(group, places)
        batches = records.batches
        offsets = group.base_offsets[batches] + records.offset_deltas
        stays = offsets > latest_offset
        asked = ~stays & (records.key_lengths >= 0)
        asked &= ~records.is_tombstone | group.keep_tombstones[batches]
        chosen = np.flatnonzero(asked)
        starts, lengths = records.key_starts[chosen], records.key_lengths[chosen]
        high, low = self._hash.of(group.data, starts, lengths)
        stays[chosen] = offsets[chosen] >= self._last_offsets(high, low)
        return _selected(group, places, batches, stays, records.is_tombstone)

    def _last_offsets(self, high: Array, low: Array) -> Array:
        """Return the last offset of each key, -1 if it is not in the map."""
        slots = _slots(high, len(self._highs))
        found = np.full(len(slots), -1, np.int64)
        left = np.arange(len(slots))
        while len(left):
            highs = self._highs.take(slots)
            is_there = highs == high
            is_there &= self._lows.take(slots) == low
            there = np.flatnonzero(is_there)
            found[left.take(there)] = self._lasts.take(slots.take(there))
            rest = np.flatnonzero(~is_there & (highs != 0))
            left, high, low = left.take(rest), high.take(rest), low.take(rest)
            slots = slots.take(rest) + 1
            slots[slots == len(self._highs)] = 0
        return found


def _offsets(group: RecordGroup, places: RecordPlaces, records: RecordArrays) -> tuple[Array, bool]:
    """Return the offsets of records, and whether batches without gaps have no other ones."""
    batches = records.batches
    offsets: Array = group.base_offsets[batches] + records.offset_deltas
    is_other = np.arange(len(offsets)) - places.firsts[batches] != records.offset_deltas
    is_regular = True
    if is_other.any():
        is_dense = _are_dense(group.base_offsets, group.last_offsets, group.counts)
        is_regular = not is_dense[batches[is_other]].any()
    return offsets, is_regular


def _are_dense(first_offsets: Array, last_offsets: Array, counts: Array) -> Array:
    """Return for each batch whether it has a record for each of its offsets."""
    are: Array = last_offsets - first_offsets + 1 == counts
    return are


def _count(marks: OffsetMarks, starts: Array, ends: Array) -> Array:
    """Return how many offsets are marked in each of these ranges, which rise."""
    first = starts[0]
    bits = np.append(marks.between(int(first), int(ends[-1])), np.uint8(0))
    limits = np.column_stack((starts, ends)).reshape(-1) - first
    counts: Array = np.add.reduceat(bits, limits, dtype=np.int64)[::2]
    return counts


def _slots(high: Array, count: int) -> Array:
    slots: Array = (((high >> _HALF) * _U(count)) >> _HALF).astype(np.int64)
    return slots


def _selected(
    group: RecordGroup, places: RecordPlaces, batches: Array, stays: Array, is_tombstone: Array
) -> Selected:
    firsts = places.firsts
    kept = np.add.reduceat(stays, firsts, dtype=np.int64)
    tombstones = np.add.reduceat(stays & is_tombstone, firsts, dtype=np.int64)
    begins, ends = _runs(firsts, stays)
    return Selected(
        kept,
        tombstones > 0,
        _largest_deltas(group, places, stays, kept),
        np.searchsorted(batches[begins], np.arange(len(firsts) + 1)),
        places.starts[begins],
        places.ends[ends],
    )


def _largest_deltas(group: RecordGroup, places: RecordPlaces, stays: Array, kept: Array) -> Array:
    """Return the largest timestamp delta of the records that stay, for each batch."""
    largest = np.full(len(kept), _NEVER, np.int64)
    has_some = np.flatnonzero(kept)
    if len(has_some):
        deltas = read_timestamp_deltas(group.data, places.starts[stays])
        firsts = (np.cumsum(kept) - kept)[has_some]
        largest[has_some] = np.maximum.reduceat(deltas, firsts)
    return largest


def _runs(firsts: Array, stays: Array) -> tuple[Array, Array]:
    """Return the first and the last record of each run of records that stay in one batch."""
    begins, ends = stays.copy(), stays.copy()
    begins[1:] &= ~stays[:-1]
    begins[firsts] = stays[firsts]
    ends[:-1] &= ~stays[1:]
    lasts = np.append(firsts[1:], len(stays)) - 1
    ends[lasts] = stays[lasts]
    return np.flatnonzero(begins), np.flatnonzero(ends)
