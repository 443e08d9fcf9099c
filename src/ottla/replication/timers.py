"""Deadlines of parked requests and periodic work, in one heap of monotonic time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

MOST_CALLS: Final = 200
"""How many timers a wake-up calls. Thousands of requests may wait until the same time."""


class Timer:
    """A call at a time. Cancelling it is free; the heap forgets it when its time comes."""

    __slots__ = ("action", "deadline_ms")

    def __init__(self, deadline_ms: float, action: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    """All timers of a node."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0

    def at(self, deadline_ms: float, action: Callable[[], None]) -> Timer:
        """Call `action` once, when `deadline_ms` has come."""
        timer = Timer(deadline_ms, action)
        self._sequence += 1
        heappush(self._heap, (deadline_ms, self._sequence, timer))
        if self._sequence % 1024 == 0:
            self._drop_cancelled()
        return timer

    def next_deadline_ms(self) -> float | None:
        """Return when the next timer is due, or None without any."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def are_due(self, now_ms: float) -> bool:
        """Return True if `run` may have something to do."""
        heap = self._heap
        return bool(heap) and heap[0][0] <= now_ms

    def run(self, now_ms: float) -> list[Callable[[], None]]:
        """Call what is due, but not too much at once; return what was called.

        The rest is still due then, and the next wake-up begins at once.
        """
        heap = self._heap
        called: list[Callable[[], None]] = []
        while heap and heap[0][0] <= now_ms and len(called) < MOST_CALLS:
            timer = heappop(heap)[2]
            action = timer.action
            if action is not None:
                timer.action = None
                called.append(action)
                action()
        return called

    def _drop_cancelled(self) -> None:
        """Keep the heap near the number of live timers, however long their deadlines are."""
        live = [item for item in self._heap if item[2].action is not None]
        if len(live) * 2 < len(self._heap):
            live.sort()
            self._heap[:] = live
