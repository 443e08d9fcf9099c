"""The limit on what all cleans together read and write (log.cleaner.io.max.bytes.per.second)."""

from __future__ import annotations

from math import inf
from typing import Final

SLOWEST: Final = 1.0
"""Bytes per second. With a rate of zero a clean would never end."""


class IoThrottle:
    """Says how long to wait after each read or write, so that the rate holds on average.

    As with Kafka any number is a rate: one below zero, or none (NaN), is no limit.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self.change(bytes_per_second)

    def change(self, bytes_per_second: float) -> None:
        """Use another rate from now on, also for those that wait."""
        is_limit = bytes_per_second >= 0
        self.bytes_per_second = max(bytes_per_second, SLOWEST) if is_limit else inf
        self._free_ms = 0.0
        """When everything so far would have been done at exactly the rate."""

    def charge(self, size: int, now_ms: float) -> None:
        """Count `size` bytes that were read or written."""
        self._free_ms = max(self._free_ms, now_ms) + size * 1000 / self.bytes_per_second

    def delay_ms(self, now_ms: float) -> float:
        """Return how long to wait until the rate holds."""
        return max(0.0, self._free_ms - now_ms)
