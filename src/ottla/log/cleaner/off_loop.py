"""Steps that wait for work elsewhere: in the background, in a helper process, or for time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.model.steps import Steps, Wait
from ottla.ports import Background, TaskFailed

T = TypeVar("T")


class Started(Generic[T]):
    """Work in the background that was begun; its result is asked for later."""

    __slots__ = ("_results", "_wait")

    def __init__(self, background: Background, work: Callable[[], T]) -> None:
        self._wait = Wait()
        self._results: list[T | OSError] = []
        background.submit(work, self._done)

    def _done(self, result: T | OSError) -> None:
        self._results.append(result)
        self._wait.end()

    def result(self) -> Steps[T]:
        """Wait for the result and return it, or raise its OSError."""
        if not self._wait.is_over:
            yield self._wait
        result = self._results[0]
        if isinstance(result, OSError):
            raise result
        return result


def in_helper(
    submit: Callable[[bytes, Callable[[bytes | TaskFailed], None]], None], message: bytes
) -> Steps[bytes]:
    """Return the answer of a helper process, or raise TaskFailed."""
    wait, results = Wait(), list[bytes | TaskFailed]()

    def done(result: bytes | TaskFailed) -> None:
        results.append(result)
        wait.end()

    submit(message, done)
    if not wait.is_over:
        yield wait
    result = results[0]
    if isinstance(result, TaskFailed):
        raise result
    return result


def after(delay_ms: float, call_later: Callable[[float, Callable[[], None]], None]) -> Steps[None]:
    """Wait for a time."""
    wait = Wait()
    call_later(delay_ms, wait.end)
    if not wait.is_over:
        yield wait
