"""Helper processes for tests: tasks wait until the test finishes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.ports import Buffer, TaskFailed, run_task

Done: TypeAlias = Callable[[bytes | TaskFailed], None]


class Helpers:
    """Keeps tasks until the test finishes them, in any order."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, bytes, Done]] = []
        self.is_full = False

    def submit(self, task: str, data: Buffer, done: Done, lane: str = "") -> None:
        if self.is_full:
            raise TaskFailed("full")
        self.waiting.append((task, bytes(data), done))

    def finish(self, number: int = 0) -> None:
        task, data, done = self.waiting.pop(number)
        done(run_task(task, data))

    def fail(self) -> None:
        self.waiting.pop(0)[2](TaskFailed("it ended"))
