"""The positions of the newest batches, so that reads near the end of a log need no index.

Pairs of an offset and the position of the batch to read for it. A pair covers the offsets up to
the next pair. The number of pairs is bounded, and they are cleared when the log is idle.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

KEPT: Final = 256
LIMIT: Final = 2 * KEPT


class RecentBatches:
    """Offsets and positions of the newest batches, oldest first."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def add(self, offset: int, position: int) -> None:
        """Add a batch: offsets from this one on are read from its position."""
        self.offsets.append(offset)
        self.positions.append(position)

    def covers(self, offset: int) -> bool:
        return bool(self.offsets) and offset >= self.offsets[0]

    def find(self, offset: int, end: int) -> tuple[int, int]:
        """Return start and end of the batch for a covered offset; the last one ends at `end`."""
        slot = bisect_right(self.offsets, offset)
        following = self.positions[slot] if slot < len(self.positions) else end
        return self.positions[slot - 1], min(following, end)

    def boundary(self, position: int) -> int:
        """Return where the last batch begins that begins at or before a position."""
        return self.positions[bisect_right(self.positions, position) - 1]

    def offset_at(self, position: int) -> int | None:
        """Return the offset of the first batch at or after a position.

        None if there is none, or if older batches may lie there.
        """
        positions = self.positions
        if not positions or position < positions[0] or position > positions[-1]:
            return None
        return self.offsets[bisect_left(positions, position)]

    def shorten(self) -> None:
        """Forget the oldest batches if there are too many."""
        excess = len(self.offsets) - KEPT
        if excess > KEPT:
            del self.offsets[:excess]
            del self.positions[:excess]

    def cut(self, position: int) -> None:
        """Forget the batches from a position on."""
        slot = bisect_left(self.positions, position)
        del self.offsets[slot:]
        del self.positions[slot:]

    def clear(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
