"""The segments of one log in the order of their offsets.

Invariants: base offsets rise strictly; once the log is open there is always a segment, and the
last one is the active one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ottla.log.segment.segment import Segment


class LogSegments:
    """A sorted list of segments."""

    __slots__ = ("_segments", "base_offsets")

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self.base_offsets: list[int] = []
        """The base offset of each segment. Only this class changes the list."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def active(self) -> Segment:
        """The last segment, which batches are appended to."""
        return self._segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all written batches."""
        return sum(segment.size for segment in self._segments)

    def is_before_active(self, segment: Segment) -> bool:
        """Return True if the segment is the last but one."""
        return len(self._segments) > 1 and self._segments[-2] is segment

    def number_at(self, offset: int) -> int:
        """Return the number of the segment whose range holds the offset; 0 if it is before all."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def at(self, offset: int) -> Segment:
        """Return the segment whose range holds the offset; the first one if it is before all."""
        return self._segments[self.number_at(offset)]

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment that holds the offset and all segments after it."""
        number = self.number_at(offset)
        return self._segments[number:]

    def covering(self, start: int, end: int) -> list[Segment]:
        """Return the segments with offsets from `start` to before `end`; none if it is empty."""
        if end <= start:
            return []
        first, upto = self.number_at(start), bisect_left(self.base_offsets, end)
        return self._segments[first:upto]

    def between(self, first: Segment, last: Segment) -> list[Segment]:
        """Return the segments after `first` and before `last`."""
        start = self.number_at(first.base_offset) + 1
        end = self.number_at(last.base_offset)
        return self._segments[start:end]

    def end_of(self, segment: Segment) -> int | None:
        """Return the base offset of the next segment, or None for the last one."""
        following = self.number_at(segment.base_offset) + 1
        return self.base_offsets[following] if following < len(self.base_offsets) else None

    def add(self, segment: Segment) -> None:
        """Add a segment after the others."""
        base_offset = segment.base_offset
        assert not self.base_offsets or base_offset > self.base_offsets[-1], "segments are sorted"
        self._segments.append(segment)
        self.base_offsets.append(base_offset)

    def remove_oldest(self, count: int) -> list[Segment]:
        """Remove the first segments and return them; the active one always stays."""
        assert count < len(self._segments), "a log has at least one segment"
        removed = self._segments[:count]
        del self._segments[:count], self.base_offsets[:count]
        return removed

    def remove_after(self, number: int) -> list[Segment]:
        """Remove the segments after the one with this number and return them."""
        assert number >= 0, "a log has at least one segment"
        removed = self._segments[number + 1 :]
        del self._segments[number + 1 :], self.base_offsets[number + 1 :]
        return removed

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Put a segment in the place of neighbours that begin at the same offset."""
        number = self.number_at(old[0].base_offset)
        assert self._segments[number : number + len(old)] == old, "they are neighbours"
        assert new.base_offset == old[0].base_offset, "it begins where they begin"
        assert old[-1] is not self.active, "the active segment is not replaced"
        self._segments[number : number + len(old)] = [new]
        self.base_offsets[number : number + len(old)] = [new.base_offset]

    def replace_all(self, segment: Segment) -> None:
        """Make this the only segment."""
        self._segments = [segment]
        self.base_offsets = [segment.base_offset]
