"""How many replicas a broker has in each role, counted as roles change: asking costs nothing."""

from __future__ import annotations

from typing import Final, TypeAlias

Share: TypeAlias = tuple[int, int, int]
"""What one replica adds to the counts: (leader, follower, under-replicated)."""

NOT_COUNTED: Final[Share] = (0, 0, 0)
LEADER: Final[Share] = (1, 0, 0)
UNDER_REPLICATED_LEADER: Final[Share] = (1, 0, 1)
FOLLOWER: Final[Share] = (0, 1, 0)


class ReplicaCounts:
    """The counts of one broker."""

    __slots__ = ("followers", "leaders", "under_replicated")

    def __init__(self) -> None:
        self.leaders = 0
        self.followers = 0
        self.under_replicated = 0
        """Partitions led here whose ISR is smaller than their replicas."""

    def replace(self, before: Share, after: Share) -> None:
        """Count a replica that had one share and has another now."""
        self.leaders += after[0] - before[0]
        self.followers += after[1] - before[1]
        self.under_replicated += after[2] - before[2]
        assert min(self.leaders, self.followers, self.under_replicated) >= 0
