"""Group neighbouring segments, so that each group is cleaned into one new segment.

Otherwise segments would get smaller with each clean. A group fits into one segment even if nothing
is removed: its bytes, both indexes, and its offsets, which are 32 bits from the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

MOST_SEGMENTS: Final = 32
"""How many segments one step on the loop may replace."""

_MAX_OFFSETS: Final = 2**31 - 1


class SegmentSizes(NamedTuple):
    """What counts for grouping a segment."""

    base_offset: int
    end_offset: int
    size: int
    offset_index_size: int
    time_index_size: int


class GroupLimits(NamedTuple):
    """The most that a group may have together."""

    segment_bytes: int
    index_bytes: int


def group_sizes(segments: Sequence[SegmentSizes], limits: GroupLimits) -> list[int]:
    """Return how many segments are in each group, from the oldest on."""
    groups: list[int] = []
    size = offset_index_size = time_index_size = first_offset = 0
    for segment in segments:
        fits = bool(groups) and (
            groups[-1] < MOST_SEGMENTS
            and size + segment.size <= limits.segment_bytes
            and offset_index_size + segment.offset_index_size <= limits.index_bytes
            and time_index_size + segment.time_index_size <= limits.index_bytes
            and (not segment.size or segment.end_offset - 1 - first_offset <= _MAX_OFFSETS)
        )
        if fits:
            groups[-1] += 1
        else:
            groups.append(1)
            size = offset_index_size = time_index_size = 0
            first_offset = segment.base_offset
        size += segment.size
        offset_index_size += segment.offset_index_size
        time_index_size += segment.time_index_size
    return groups
