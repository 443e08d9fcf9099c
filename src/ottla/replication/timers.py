"""Deadlines of parked requests and periodic work, in order of monotonic time.

A heap has the timers that are due next. Later ones wait in slots of time, unsorted, and come into
the heap when it has no earlier ones. Most timers are cancelled long before: those in a slot
are dropped together then, and the heap stays small.

Invariant: whatever is in the heap is due before everything in the slots.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Final

MOST_CALLS: Final = 200
"""How many timers a wake-up calls. Thousands of requests may wait until the same time."""
SLOT_MS: Final = 64
_NO_SLOT: Final = -(1 << 62)


class Timer:
    """A function that is called at its deadline.

    To cancel it costs nothing. A cancelled timer is forgotten when its deadline is near.
    """

    __slots__ = ("action", "deadline_ms", "sequence")

    def __init__(self, deadline_ms: float, sequence: int, action: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.sequence = sequence
        """Timers with the same deadline are called in this order."""
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    """All timers of a node."""

    __slots__ = ("_heap", "_later", "_near", "_sequence", "_slots", "due_ms")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._later: dict[int, list[Timer]] = {}
        """The timers of each slot that has some."""
        self._slots: list[int] = []
        """A heap of the slots."""
        self._near = _NO_SLOT
        """Timers up to this slot are in the heap."""
        self._sequence = 0
        self.due_ms = inf
        """Before this time `run` has nothing to do."""

    def __len__(self) -> int:
        """Return how many timers are remembered, cancelled ones too."""
        return len(self._heap) + sum(map(len, self._later.values()))

    def at(self, deadline_ms: float, action: Callable[[], None]) -> Timer:
        """Call `action` once, when `deadline_ms` has come."""
        self._sequence = sequence = self._sequence + 1
        timer = Timer(deadline_ms, sequence, action)
        slot = int(deadline_ms / SLOT_MS)
        if slot <= self._near:
            heappush(self._heap, (deadline_ms, sequence, timer))
            self.due_ms = self._heap[0][0]
        else:
            later = self._later.get(slot)
            if later is None:
                self._later[slot] = [timer]
                heappush(self._slots, slot)
                self._note_next()
            else:
                later.append(timer)
        if sequence % 1024 == 0:
            self._drop_cancelled()
        return timer

    def next_deadline_ms(self) -> float | None:
        """Return when the next timer is due, or None without any."""
        heap = self._heap
        while True:
            while heap and heap[0][2].action is None:
                heappop(heap)
            if heap:
                self.due_ms = heap[0][0]
                return self.due_ms
            if not self._slots:
                self.due_ms = inf
                return None
            self._open_slot()

    def _open_slot(self) -> None:
        """Take the timers of the next slot into the heap, which is empty."""
        self._near = slot = heappop(self._slots)
        for timer in self._later.pop(slot):
            if timer.action is not None:
                heappush(self._heap, (timer.deadline_ms, timer.sequence, timer))

    def _note_next(self) -> None:
        if self._heap:
            self.due_ms = self._heap[0][0]
        else:
            self.due_ms = self._slots[0] * SLOT_MS if self._slots else inf

    def run(self, now_ms: float) -> list[Callable[[], None]]:
        """Call what is due, but not too much at once; return what was called.

        The rest is still due then, and the next wake-up begins at once.
        """
        heap = self._heap
        called: list[Callable[[], None]] = []
        while len(called) < MOST_CALLS:
            deadline_ms = self.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                break
            timer = heappop(heap)[2]
            action = timer.action
            if action is not None:
                timer.action = None
                called.append(action)
                action()
        self._note_next()
        return called

    def _drop_cancelled(self) -> None:
        """Keep the number of timers near that of live ones, however long their deadlines are."""
        live = [item for item in self._heap if item[2].action is not None]
        if len(live) * 2 < len(self._heap):
            live.sort()
            self._heap[:] = live
        for timers in self._later.values():
            remaining = [timer for timer in timers if timer.action is not None]
            if len(remaining) * 2 < len(timers):
                timers[:] = remaining
