"""Work off the loop, as the one background thread of a broker does it: later, in order.

A piece of work runs at a moment the simulation picks, between wake-ups or in the middle of a
disk operation of the loop; its result comes back on the loop at another, later moment. A
crash in between loses both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DeferredBackground:
    """The Background port. It calls `on_submit` for new work and `on_result` for new results."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], None]] = deque()
        self._results: deque[Callable[[], None]] = deque()
        self._is_running = False
        self.on_submit: Callable[[], None] = _nothing
        self.on_result: Callable[[], None] = _nothing

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Queue `work`; `done` gets its result, or its OSError."""

        def run() -> None:
            result: T | OSError
            try:
                result = work()
            except OSError as error:
                result = error
            self._results.append(lambda: done(result))

        self._work.append(run)
        self.on_submit()

    def __len__(self) -> int:
        """Return how many pieces of work have not run, or whose result was not delivered."""
        return len(self._work) + len(self._results)

    def run_one(self) -> bool:
        """Do the oldest piece of work; False when there is none, or one is being done."""
        if self._is_running or not self._work:
            return False
        self._is_running = True
        try:
            self._work.popleft()()
        finally:
            self._is_running = False
        self.on_result()
        return True

    def deliver(self) -> None:
        """Hand over the results there are; called on the loop."""
        while self._results:
            self._results.popleft()()

    def finish(self) -> None:
        """Do everything that is left and hand it over, as a stopping broker does."""
        while self._work or self._results:
            while self.run_one():
                pass
            self.deliver()


def _nothing() -> None:
    """Do nothing: nobody listens."""
