"""The fetch position of a range: the next offset, the broker to ask and how much to ask for."""

from __future__ import annotations

import time
from typing import Final

from ottla.client.cluster import NO_NODE
from ottla.client.errors import ClientError
from pyspark_ottla.fetch.offset_range import OffsetRange

FOLLOWER_FOR_S: Final = 300.0
"""How long to read from a follower before asking the leader again (metadata.max.age.ms)."""

_SMALLEST_FETCH: Final = 64 << 10
_GUESSED_RECORD_BYTES: Final = 4096
_MARGIN: Final = 1.1


class Position:
    """The position in a range. It is fetched from the leader, or from the preferred replica
    that the leader named (KIP-392).
    """

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
        """The broker to fetch from."""
        if self._follower != NO_NODE and time.monotonic() < self._follower_until:
            return self._follower
        return self.leader

    @property
    def is_at_follower(self) -> bool:
        return self.node != self.leader

    def prefer(self, follower: int) -> None:
        """Fetch from this replica for FOLLOWER_FOR_S."""
        self._follower = follower
        self._follower_until = time.monotonic() + FOLLOWER_FOR_S

    def back_to_leader(self) -> None:
        self._follower = NO_NODE

    def forget_leader(self) -> None:
        """Forget the leader, so that it is looked up before the next fetch."""
        self.leader = self._follower = NO_NODE

    def bytes_to_ask(self, limit: int) -> int:
        """Return how many bytes to ask for: a little more than the rest of the range should take.

        The estimate follows from the bytes per offset of the last fetch.
        """
        left = (self.range.end - self.offset) * self._bytes_per_offset * _MARGIN
        return max(self.least_bytes, min(limit, int(left) + _SMALLEST_FETCH))

    def advance(self, offset: int, size: int) -> None:
        """Record that `size` bytes arrived and that `offset` is next."""
        self._bytes_per_offset = size / max(1, offset - self.offset)
        self.offset = offset
        self.done = offset >= self.range.end
        self.least_bytes = 0
        self._failing_since = self._waiting_since = None

    def finish(self) -> None:
        """Stop fetching this range."""
        self.done = True

    def failed(self, error: ClientError, timeout_ms: float) -> None:
        """Record a temporary failure. Raise it if fetches have failed for `timeout_ms`."""
        self._failing_since = _since(self._failing_since)
        if time.monotonic() - self._failing_since > timeout_ms / 1000:
            raise error

    def has_waited(self, timeout_ms: float) -> bool:
        """Record an empty response. Return true if there was nothing else for `timeout_ms`."""
        self._failing_since = None
        self._waiting_since = _since(self._waiting_since)
        return time.monotonic() - self._waiting_since > timeout_ms / 1000


def _since(moment: float | None) -> float:
    return time.monotonic() if moment is None else moment
