"""The fields of all records of many batches, as arrays (numpy).

A record says where the next one begins, so the records of one batch are found one after the other.
Many batches are walked at the same time: the first record of each, the second of each, and so on.
The last few batches, which have more records than others, are walked by a loop in Python. Then the
fields of all records are read at once.

The bytes are not trusted: every length is checked before it is used. Indexing beyond the end of the
data raises IndexError, which counts as damage as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ottla.records.batch import CorruptBatch
from ottla.records.varint import read_int

Array: TypeAlias = "np.ndarray[Any, Any]"

PADDING: Final = bytes(16)
"""What `data` must end with, so that a word can be read wherever a key begins."""

_FEW_BATCHES: Final = 24
"""So many batches are walked faster by a loop in Python than by operations on arrays."""
_MIN_BODY_BYTES: Final = 6
_MORE: Final = 0x80
_DAMAGED: Final = "a record is longer than its batch, or shorter than its fields"


class RecordArrays(NamedTuple):
    """The records of some batches, in the order of the log: an element for each record."""

    starts: Array
    ends: Array
    batches: Array
    """The number of the batch of each record."""
    offset_deltas: Array
    timestamp_deltas: Array
    key_starts: Array
    key_lengths: Array
    """-1 for a record without a key."""
    is_tombstone: Array
    firsts: Array
    """For each batch, the number of its first record."""


def read_records(
    data: memoryview, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> RecordArrays:
    """Return the records of batches, whose records are `data[start:end]`; CorruptBatch if damaged.

    Each batch has at least one record. `data` ends with PADDING.
    """
    view = np.frombuffer(data, np.uint8)
    numbers = np.array(counts, np.int64)
    firsts = np.cumsum(numbers) - numbers
    if (numbers < 1).any() or (numbers > len(data)).any():
        raise CorruptBatch(0, _DAMAGED)
    positions = np.empty(int(numbers.sum()), np.int64)
    stops = np.array(ends, np.int64)
    _walk(data, view, np.array(starts, np.int64), stops, numbers, firsts, positions)
    batches = np.repeat(np.arange(len(numbers)), numbers)
    return _fields(view, positions, batches, stops, firsts)


def _walk(
    data: memoryview,
    view: Array,
    starts: Array,
    stops: Array,
    counts: Array,
    firsts: Array,
    positions: Array,
) -> None:
    """Fill in where each record begins."""
    order = np.argsort(-counts, kind="stable")
    at, ends = starts[order], stops[order]
    places, left = firsts[order], counts[order]
    ascending = left[::-1]
    done, total = 0, len(order)
    active = total
    words = np.ndarray((len(data) - 3,), "V4", buffer=data, strides=(1,))
    while active >= _FEW_BATCHES:
        # All of the first `active` batches have more than `done` records.
        upto = int(ascending[total - active])
        here, place = at[:active].copy(), places[:active] + done
        for _ in range(done, upto):
            positions[place] = here
            here = _after_record(view, words, here)
            place += 1
        at[:active] = here
        done = upto
        active = total - int(np.searchsorted(ascending, done, side="right"))
    for number in range(active):
        first, count = int(places[number]), int(left[number])
        to_fill = positions[first + done : first + count]
        at[number] = _walk_one(data, int(at[number]), int(ends[number]), to_fill)
    if (at != ends).any():
        raise CorruptBatch(0, "bytes follow the last record")


def _after_record(view: Array, words: Array, at: Array) -> Array:
    """Return where the records at these positions end. Lengths are checked later, in `_fields`."""
    word = words[at].view("<u4").astype(np.int64)
    if (word & 0x8080 == 0x8080).any():  # lengths of more than two bytes
        numbers, body = _varints(view, at)
        if (numbers < 0).any():
            raise CorruptBatch(0, _DAMAGED)
        return body + numbers
    is_long: Array = (word >> 7) & 1
    lengths: Array = ((word & 0x7F) >> 1) + ((word >> 8 & 0x7F) << 6) * is_long
    lengths += at
    lengths += is_long
    lengths += 1
    return lengths


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


def _fields(
    view: Array, starts: Array, batches: Array, stops: Array, firsts: Array
) -> RecordArrays:
    lengths, bodies = _varints(view, starts)
    ends = bodies + lengths
    if (lengths < _MIN_BODY_BYTES).any() or (ends > stops[batches]).any():
        raise CorruptBatch(0, _DAMAGED)
    timestamp_deltas, at = _varints(view, bodies + 1)
    offset_deltas, at = _varints(view, at)
    key_lengths, key_starts = _varints(view, at)
    key_ends = key_starts + np.maximum(key_lengths, 0)
    if (key_lengths < -1).any() or (key_ends >= ends).any():
        raise CorruptBatch(0, _DAMAGED)
    value_lengths, at = _varints(view, key_ends)
    if (at > ends).any():
        raise CorruptBatch(0, _DAMAGED)
    return RecordArrays(
        starts,
        ends,
        batches,
        offset_deltas,
        timestamp_deltas,
        key_starts,
        key_lengths,
        value_lengths < 0,
        firsts,
    )


def _varints(view: Array, at: Array) -> tuple[Array, Array]:
    """Return the zigzag numbers at these positions, and the positions after them."""
    first = view[at]
    numbers = (first & 0x7F).astype(np.int64)
    after = at + 1
    rest = np.flatnonzero(first >= _MORE)
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
