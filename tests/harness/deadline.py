"""Waiting for something to become true, by asking until a deadline and never by sleeping it out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 0.01


class Deadline:
    """A point in time; `left` is what remains of it in seconds, never negative."""

    def __init__(self, timeout_s: float) -> None:
        self.at = time.monotonic() + timeout_s

    @property
    def left(self) -> float:
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.left == 0.0


def eventually(probe: Callable[[], T | None], what: str, timeout_s: float = 15.0) -> T:
    """Return the first truthy answer of `probe`, or raise AssertionError with the last one."""
    deadline = Deadline(timeout_s)
    while True:
        answer = probe()
        if answer:
            return answer
        if deadline.passed:
            raise AssertionError(f"not within {timeout_s} s: {what} (last answer: {answer!r})")
        time.sleep(PAUSE_S)
