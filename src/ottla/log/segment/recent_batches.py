"""Where the last batches of the active segment begin, so that tail reads need no index.

Pairs of an offset and the position of the batch to read for it: offsets from one pair up to
the next are served from the first one's position. Bounded, and cleared when the log has been
idle for a while.
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
        """Serve offsets from this one on from a position."""
        self.offsets.append(offset)
        self.positions.append(position)

    def covers(self, offset: int) -> bool:
        return bool(self.offsets) and offset >= self.offsets[0]

    def find(self, offset: int, end: int) -> tuple[int, int]:
        """Begin and end of the batch for a covered offset; `end` is that of the last batch."""
        slot = bisect_right(self.offsets, offset)
        following = self.positions[slot] if slot < len(self.positions) else end
        return self.positions[slot - 1], min(following, end)

    def shorten(self) -> None:
        """Forget the older ones when there are too many."""
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
