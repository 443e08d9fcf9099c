"""The fields of all records of many batches, as arrays (numpy).

A record says where the next one begins, so the records of one batch are found one after the other.
Many batches are walked at the same time: the first record of each, the second of each, and so on.
The last few batches, which have more records than others, are walked by a loop in Python. No walk
is needed if all records of each batch have one size. Then the fields of all records are read at
once.

The bytes are not trusted: every length is checked before it is used. Indexing beyond the end of the
data raises IndexError, which counts as damage as well.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ottla.ports import Buffer
from ottla.records.batch import CorruptBatch
from ottla.records.varint import read_int

Array: TypeAlias = "np.ndarray[Any, Any]"

PADDING: Final = bytes(16)
"""What `data` must end with, so that a word can be read wherever a key begins."""

_FEW_BATCHES: Final = 24
"""Up to this many batches, a loop in Python is faster than operations on arrays."""
_MIN_BODY_BYTES: Final = 6
_MORE: Final = 0x80
_NULL: Final = 1
"""The length -1 as a varint."""
_DAMAGED: Final = "a record is longer than its batch, or shorter than its fields"


def _small_sizes() -> Array:
    """Return the size of a record by its first two bytes; 0 if its length takes more of them."""
    first, second = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    lengths = np.where(first < _MORE, first, first & 0x7F | (second & 0x7F) << 7)
    sizes = (lengths >> 1) + np.where(first < _MORE, 1, 2)
    is_known = (lengths & 1 == 0) & ((first < _MORE) | (second < _MORE))
    return np.where(is_known, sizes, 0).astype(np.int32)


_SIZES: Final = _small_sizes()
_ZIGZAG: Final = ((np.arange(256) >> 1) ^ -(np.arange(256) & 1)).astype(np.int64)


class RecordGroup(NamedTuple):
    """The records of some batches in one buffer, decompressed: an element for each batch."""

    data: Buffer
    """It ends with PADDING."""
    starts: Array
    ends: Array
    counts: Array
    """Each batch has at least one record."""
    base_offsets: Array
    last_offsets: Array
    keep_tombstones: Array
    """False if records without a value go."""


class RecordArrays(NamedTuple):
    """The records of some batches, in the order of the log: an element for each record."""

    batches: Array
    """The number of the batch of each record."""
    offset_deltas: Array
    key_starts: Array
    key_lengths: Array
    """-1 for a record without a key."""
    is_tombstone: Array


class RecordPlaces(NamedTuple):
    """Where the records of some batches are, in the order of the log."""

    starts: Array
    ends: Array
    firsts: Array
    """For each batch, the number of its first record."""


def find_records(group: RecordGroup) -> RecordPlaces:
    """Return where records are in batches. Raise CorruptBatch if one is longer than its batch."""
    counts = group.counts
    if counts.min() < 1 or counts.max() > len(group.data):
        raise CorruptBatch(0, _DAMAGED)
    firsts = np.cumsum(counts) - counts
    equal = _equal_records(group, firsts)
    if equal is None:
        starts = np.empty(int(counts.sum()), np.int64)
        _walk(group, firsts, starts)
    else:
        starts = equal
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[firsts[1:] - 1] = group.ends[:-1]
    ends[-1] = group.ends[-1]
    return RecordPlaces(starts, ends, firsts)


def read_records(group: RecordGroup, places: RecordPlaces) -> RecordArrays:
    """Return the fields of the records of batches; raise CorruptBatch if they are damaged."""
    view = np.frombuffer(group.data, np.uint8)
    batches = np.repeat(np.arange(len(group.counts)), group.counts)
    starts, ends = places.starts, places.ends
    bodies = _after_varints(view, starts)
    if (ends - bodies < _MIN_BODY_BYTES).any():
        raise CorruptBatch(0, _DAMAGED)
    offset_deltas, at = _varints(view, _after_varints(view, bodies + 1))
    key_lengths, key_starts = _varints(view, at)
    shortest = key_lengths.min()
    if shortest < -1:
        raise CorruptBatch(0, _DAMAGED)
    key_ends = key_starts + (key_lengths if shortest >= 0 else np.maximum(key_lengths, 0))
    if (key_ends >= ends).any():
        raise CorruptBatch(0, _DAMAGED)
    return RecordArrays(batches, offset_deltas, key_starts, key_lengths, view[key_ends] == _NULL)


def read_timestamp_deltas(data: Buffer, starts: Array) -> Array:
    """Return the timestamp deltas of the records that begin here, which were read before."""
    view = np.frombuffer(data, np.uint8)
    return _varints(view, _after_varints(view, starts) + 1)[0]


def _equal_records(group: RecordGroup, firsts: Array) -> Array | None:
    """Return where each record begins if those of each batch have one size, otherwise None."""
    counts, totals = group.counts, group.ends - group.starts
    sizes = totals // counts
    if (sizes * counts != totals).any() or sizes.min() <= _MIN_BODY_BYTES:
        return None
    size_of = np.repeat(sizes, counts)
    starts: Array = np.repeat(group.starts - firsts * sizes, counts)
    starts += np.arange(len(starts)) * size_of
    pairs = np.ndarray((len(group.data) - 1,), "V2", group.data, strides=(1,))
    is_right = _SIZES[pairs[starts].view("<u2")] == size_of
    return starts if is_right.all() else None


def _walk(group: RecordGroup, firsts: Array, positions: Array) -> None:
    """Fill in where each record begins."""
    data, counts = group.data, group.counts
    view = np.frombuffer(data, np.uint8)
    pairs = np.ndarray((len(data) - 1,), "V2", data, strides=(1,))
    order = np.argsort(-counts, kind="stable")
    at, ends = group.starts[order], group.ends[order]
    places, left = firsts[order], counts[order]
    ascending = left[::-1]
    done, total = 0, len(order)
    active = total
    while active >= _FEW_BATCHES:
        # All of the first `active` batches have more than `done` records.
        upto = int(ascending[total - active])
        here, place = at[:active], places[:active] + done
        for _ in range(done, upto):
            positions[place] = here
            sizes = _SIZES[pairs[here].view("<u2")]
            here = here + sizes if sizes.min() else _after_records(view, here)
            place += 1
        at[:active] = here
        done = upto
        active = total - int(np.searchsorted(ascending, done, side="right"))
    with memoryview(data) as bytes_view:
        for number in range(active):
            first, count = int(places[number]), int(left[number])
            to_fill = positions[first + done : first + count]
            at[number] = _walk_one(bytes_view, int(at[number]), int(ends[number]), to_fill)
    if (at != ends).any():
        raise CorruptBatch(0, "bytes follow the last record")


def _after_records(view: Array, at: Array) -> Array:
    """Return where the records at these positions end. Lengths may have more than two bytes."""
    lengths, bodies = _varints(view, at)
    if lengths.min() < 0:
        raise CorruptBatch(0, _DAMAGED)
    return bodies + lengths


def _walk_one(data: memoryview, position: int, end: int, positions: Array) -> int:
    """Fill in where the records of one batch begin; return where the last one ends."""
    found: list[int] = []
    add = found.append
    for _ in range(len(positions)):
        add(position)
        byte = data[position]
        if byte < _MORE:
            length, body = byte, position + 1
        else:
            more = data[position + 1]
            if more < _MORE:
                length, body = byte & 0x7F | more << 7, position + 2
            else:
                number, size = read_int(bytes(data[position : position + 5]), 0)
                length, body = number << 1 if number >= 0 else 1, position + size
        if length & 1 or length < 2 * _MIN_BODY_BYTES:
            raise CorruptBatch(0, _DAMAGED)
        position = body + (length >> 1)
        if position > end:
            raise CorruptBatch(0, _DAMAGED)
    positions[:] = found
    return position


def _after_varints(view: Array, at: Array) -> Array:
    """Return the positions after the numbers at these positions."""
    after: Array = at + 1
    rest = np.flatnonzero(view[at] >= _MORE)
    if len(rest) == len(at):  # mostly all of them have two bytes
        is_longer = view[after] >= _MORE
        after += 1
        rest = np.flatnonzero(is_longer)
    for _ in range(9):
        if not len(rest):
            return after
        is_longer = view[after[rest]] >= _MORE
        after[rest] += 1
        rest = rest[is_longer]
    raise CorruptBatch(0, _DAMAGED)


def _varints(view: Array, at: Array) -> tuple[Array, Array]:
    """Return the zigzag numbers at these positions, and the positions after them."""
    first = view[at]
    after = at + 1
    rest = np.flatnonzero(first >= _MORE)
    if not len(rest):
        return _ZIGZAG[first], after
    numbers = (first & 0x7F).astype(np.int64)
    shift = 7
    while len(rest):
        if shift > 63:
            raise CorruptBatch(0, _DAMAGED)
        following = view[after[rest]]
        numbers[rest] |= (following & 0x7F).astype(np.int64) << shift
        after[rest] += 1
        rest = rest[following >= _MORE]
        shift += 7
    # The sign bit is shifted in by hand: >> of a negative number would copy it.
    return ((numbers >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(numbers & 1), after
