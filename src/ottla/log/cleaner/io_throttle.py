"""The limit on what all cleans together read and write (log.cleaner.io.max.bytes.per.second)."""

from __future__ import annotations


class IoThrottle:
    """Says how long to wait after each read or write, so that the rate holds on average."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_ms = 0.0
        """When everything so far would have been done at exactly the rate."""

    def delay_ms(self, size: int, now_ms: float) -> float:
        """Return how long to wait after `size` bytes."""
        self._free_ms = max(self._free_ms, now_ms) + size * 1000 / self.bytes_per_second
        return self._free_ms - now_ms
