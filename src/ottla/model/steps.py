"""Long work in steps: a generator that yields after a little work, so that others get a turn.

A step takes at most a fraction of a millisecond. The node runs steps for a few milliseconds in a
wake-up (`broker/sliced_work.py`). Between two steps anything may happen: what a step has read may
have changed before the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable
from itertools import islice
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


class Wait:
    """Yielded instead of None by steps that go on when something else is done, such as a write."""

    __slots__ = ("_resume", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._resume: Callable[[], None] | None = None

    def then(self, resume: Callable[[], None]) -> None:
        """Call `resume` when the wait is over."""
        self._resume = resume

    def end(self) -> None:
        """Let the steps go on."""
        self.is_over = True
        if self._resume is not None:
            self._resume()


Steps: TypeAlias = Generator[Any, None, T]
"""Yields None, or a `Wait`, after each step, and returns the result in the end."""

ITEMS_A_STEP = 16
_COUNTED_A_STEP = 1000


def in_steps(
    make: Callable[[T], R], items: Iterable[T], at_a_time: int = ITEMS_A_STEP
) -> Steps[list[R]]:
    """Return what `make` returns for each item, a few items with each step."""
    made: list[R] = []
    for item in items:
        made.append(make(item))
        if not len(made) % at_a_time:
            yield
    return made


def count_in_steps(items: Iterable[K]) -> Steps[Counter[K]]:
    """Return how often each item occurs, in the order in which they occur first."""
    counts: Counter[K] = Counter()
    rest = iter(items)
    while some := list(islice(rest, _COUNTED_A_STEP)):
        counts.update(some)
        yield
    return counts


def run_to_end(steps: Steps[T]) -> T:
    """Run all steps at once, while nothing else has to be done; return the result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        assert step is None or step.is_over, "nobody can wait here"
