"""The time limit of an operation, which may need several requests."""

from __future__ import annotations

import time

from ottla.client.errors import TimedOut


class Deadline:
    """A time limit of `timeout_ms`. The error message names the `purpose`."""

    def __init__(self, timeout_ms: float, purpose: str) -> None:
        self.timeout_ms = timeout_ms
        self.purpose = purpose
        self._end = time.monotonic() + timeout_ms / 1000

    def remaining_s(self) -> float:
        """Return the seconds left, more than zero. Raise TimedOut if none are left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut(f"{self.purpose} took longer than {self.timeout_ms / 1000:g} s")
        return left

    def allows(self, seconds: float) -> bool:
        """Return True if `seconds` from now is before the deadline."""
        return time.monotonic() + seconds < self._end

    def at_most(self, timeout_ms: float) -> Deadline:
        """Return a deadline that ends in `timeout_ms`, or with this one if that is sooner."""
        return Deadline(min(timeout_ms, self.remaining_s() * 1000), self.purpose)
