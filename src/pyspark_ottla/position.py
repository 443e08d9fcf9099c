"""How far a range has been fetched, from whom, and how much to ask for next."""

from __future__ import annotations

import time
from typing import Final

from ottla.client.cluster import NO_NODE
from ottla.client.errors import ClientError
from pyspark_ottla.ranges import OffsetRange

FOLLOWER_FOR_S: Final = 300.0
"""How long a follower is read from before the leader is asked again (metadata.max.age.ms)."""

_SMALLEST_FETCH: Final = 64 << 10
_GUESSED_RECORD_BYTES: Final = 4096
_SPARE: Final = 1.1


class Position:
    """A range under way. Asked of `leader`, or of a follower that the leader named (KIP-392)."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.range = wanted
        self.offset = wanted.start
        self.done = wanted.start >= wanted.end
        self.leader = NO_NODE
        self.least_bytes = 0
        self._follower = NO_NODE
        self._follower_until = 0.0
        self._failing_since: float | None = None
        self._waiting_since: float | None = None
        self._bytes_per_offset = float(_GUESSED_RECORD_BYTES)

    @property
    def node(self) -> int:
        """Whom to fetch from."""
        if self._follower != NO_NODE and time.monotonic() < self._follower_until:
            return self._follower
        return self.leader

    @property
    def is_at_follower(self) -> bool:
        return self.node != self.leader

    def prefer(self, follower: int) -> None:
        """Fetch from this replica for a while."""
        self._follower = follower
        self._follower_until = time.monotonic() + FOLLOWER_FOR_S

    def back_to_leader(self) -> None:
        self._follower = NO_NODE

    def forget_leader(self) -> None:
        """Look the leader up before the next fetch."""
        self.leader = self._follower = NO_NODE

    def bytes_to_ask(self, limit: int) -> int:
        """Little more than is left of the range, judged by what came so far."""
        left = (self.range.end - self.offset) * self._bytes_per_offset * _SPARE
        return max(self.least_bytes, min(limit, int(left) + _SMALLEST_FETCH))

    def advance(self, offset: int, size: int) -> None:
        """`size` bytes came and reach up to `offset`."""
        self._bytes_per_offset = size / max(1, offset - self.offset)
        self.offset = offset
        self.done = offset >= self.range.end
        self.least_bytes = 0
        self._failing_since = self._waiting_since = None

    def finish(self) -> None:
        """Nothing of this range is to be fetched any more."""
        self.done = True

    def failed(self, error: ClientError, timeout_ms: float) -> None:
        """Note a failure that may pass; raises it when it has not for `timeout_ms`."""
        self._failing_since = _since(self._failing_since)
        if time.monotonic() - self._failing_since > timeout_ms / 1000:
            raise error

    def has_waited(self, timeout_ms: float) -> bool:
        """Note that nothing came; whether that has been so for `timeout_ms`."""
        self._failing_since = None
        self._waiting_since = _since(self._waiting_since)
        return time.monotonic() - self._waiting_since > timeout_ms / 1000


def _since(moment: float | None) -> float:
    return time.monotonic() if moment is None else moment
