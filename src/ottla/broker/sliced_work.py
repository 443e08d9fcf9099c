"""Long work on the loop, a few milliseconds in each wake-up.

What takes long is a generator that yields after a little work (`ottla.model.steps`). It begins at
once, and most of the time it also ends at once. If the wake-up has no time left, it goes on in the
next one, and requests of other connections are handled in between. All that waits takes turns,
step by step, so a short request does not wait for the end of a long one. Work that yields a `Wait`
goes on when that is over. It comes first then: it has not taken any time meanwhile, and work that
often waits, such as a clean of a log, would make little progress beside requests with long steps.
It goes on in the same wake-up, but only when the replies are sent, if there is time left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.model.steps import Steps, Wait

if TYPE_CHECKING:
    from ottla.broker.node import Node

SLICE_MS: Final = 2.0
"""How long all sliced work may take in a wake-up."""

_PAUSE_MS: Final = 0.05
_END: Final[Any] = object()
_Work: TypeAlias = tuple[Steps[Any], Callable[[], bool]]


class SlicedWork:
    """All work of a node that is done in slices."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: deque[_Work] = deque()
        self._is_scheduled = False
        self._is_put_off = False
        """Whether work goes on when the replies of this wake-up are sent."""
        self._wake_up_ms = -1.0
        self._left_ms = SLICE_MS
        self.slice_ms = SLICE_MS
        """How long a slice may be. With 0, each step has a wake-up of its own."""

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, steps: Steps[Any], is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Begin with the work; return True if it is done, False if it goes on later.

        If it is not wanted any more, it is dropped before its next step.
        """
        work = steps, is_wanted
        if self._waiting:
            self._go_on_later(work)
            return False
        return self._begin(work)

    def _go_on_later(self, work: _Work) -> None:
        self._waiting.append(work)
        self._schedule()

    def _go_on_first(self, work: _Work) -> None:
        self._waiting.appendleft(work)
        if not self._is_put_off:
            self._is_put_off = True
            self._node.put_off.append(self._go_on_now)

    def _go_on_now(self) -> None:
        self._is_put_off = False
        if self._time_left_ms() > 0:
            self._take_turns()
        else:
            self._schedule()

    def _time_left_ms(self) -> float:
        """Return how long work may take in what is left of this wake-up."""
        is_first = self._wake_up_ms != self._node.monotonic_ms
        return self.slice_ms if is_first else min(self._left_ms, self.slice_ms)

    def _begin(self, work: _Work) -> bool:
        """Do as many steps as this wake-up has time for; return True if these are all."""
        steps, _ = work
        node = self._node
        if self._wake_up_ms != node.monotonic_ms:
            self._wake_up_ms = node.monotonic_ms
            self._left_ms = self.slice_ms
        clock = node.clock.monotonic_ms
        began_ms = clock()
        while self._left_ms > 0:
            step = next(steps, _END)
            if step is _END:
                self._left_ms -= clock() - began_ms
                return True
            if step is not None and not step.is_over:
                self._left_ms -= clock() - began_ms
                step.then(partial(self._go_on_first, work))
                return False
            if clock() - began_ms >= self._left_ms:
                self._left_ms = 0.0
        self._go_on_later(work)
        return False

    def _take_turns(self) -> None:
        """Do steps of all that waits, for as long as there is time."""
        clock = self._node.clock.monotonic_ms
        began_ms, left_ms = clock(), self._time_left_ms()
        self._wake_up_ms = self._node.monotonic_ms
        self._left_ms = 0.0
        waiting = self._waiting
        while waiting:
            work = steps, is_wanted = waiting.popleft()
            if not is_wanted():
                steps.close()
            elif (step := next(steps, _END)) is None:
                waiting.append(work)
            elif step is not _END:
                self._go_on_after(step, work)
            if clock() - began_ms >= left_ms:
                break
        self._left_ms = max(left_ms - (clock() - began_ms), 0.0)
        self._is_scheduled = False
        if waiting:
            self._schedule()

    def _go_on_after(self, wait: Wait, work: _Work) -> None:
        if wait.is_over:
            self._waiting.append(work)
        else:
            wait.then(partial(self._go_on_first, work))

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._node.timers.at(self._node.monotonic_ms + _PAUSE_MS, self._take_turns)
