"""A bit for each offset of a range (numpy).

The range has an end, so that the memory has a limit. Only the part that is used takes memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ottla.log.cleaner.record_arrays import Array

_BITS: Final = np.array([128 >> number for number in range(8)], np.uint8)


class OffsetMarks:
    """Marks offsets from `first` up to before `end`. Others are ignored."""

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.end = first + count
        self._bytes: np.ndarray[Any, Any] = np.zeros(count // 8 + 1, np.uint8)

    def add(self, offsets: Array) -> None:
        """Mark these offsets."""
        at = offsets - self.first
        if len(at) and (at.min() < 0 or at.max() >= self.end - self.first):
            at = at[(at >= 0) & (at < self.end - self.first)]
        np.bitwise_or.at(self._bytes, at >> 3, _BITS[at & 7])

    def are_marked(self, offsets: Array) -> Array:
        """Return for each of these offsets, which are in the range, whether it is marked."""
        at = offsets - self.first
        marked: Array = (self._bytes[at >> 3] & _BITS[at & 7]) != 0
        return marked

    def between(self, start: int, end: int) -> Array:
        """Return 1 for each marked offset from `start` up to before `end`, and 0 for others."""
        first_byte = (start - self.first) >> 3
        upto_byte = (end - self.first + 7) >> 3
        bits = np.unpackbits(self._bytes[first_byte:upto_byte])
        skipped = (start - self.first) & 7
        return bits[skipped : skipped + end - start]
