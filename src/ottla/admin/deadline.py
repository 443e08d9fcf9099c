"""A point in time by which an operation must be done, however many requests it takes."""

from __future__ import annotations

import time

from ottla.admin.errors import TimedOut


class Deadline:
    """Counts down from `timeout_ms`; `purpose` is named when it passes."""

    def __init__(self, timeout_ms: float, purpose: str) -> None:
        self.timeout_ms = timeout_ms
        self.purpose = purpose
        self._end = time.monotonic() + timeout_ms / 1000

    def remaining_s(self) -> float:
        """Seconds left, more than zero; raises TimedOut when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut(f"{self.purpose} took longer than {self.timeout_ms / 1000:g} s")
        return left

    def allows(self, seconds: float) -> bool:
        """Whether `seconds` from now is still before the deadline."""
        return time.monotonic() + seconds < self._end

    def at_most(self, timeout_ms: float) -> Deadline:
        """This deadline, or one `timeout_ms` from now if that comes sooner."""
        return Deadline(min(timeout_ms, self.remaining_s() * 1000), self.purpose)
