"""What happens when: actions at virtual times, in order of time and then of planning."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Timeline:
    """The one time line of a run, however many machines have clocks of their own."""

    __slots__ = ("_events", "_number", "now_ms")

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.now_ms = 0.0

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        """Call `action` when this time has come."""
        self._number += 1
        heappush(self._events, (time_ms, self._number, action))

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call `action` after this delay."""
        self.at(self.now_ms + delay_ms, action)

    def next_ms(self) -> float | None:
        """Return when the next action is due, or None if there is none."""
        return self._events[0][0] if self._events else None

    def advance_to(self, now_ms: float) -> None:
        """Let time pass; it never goes back."""
        assert now_ms >= self.now_ms, f"time cannot go from {self.now_ms} back to {now_ms}"
        self.now_ms = now_ms

    def run_due(self) -> None:
        """Call everything that is due now."""
        while self._events and self._events[0][0] <= self.now_ms:
            heappop(self._events)[2]()
