"""Fakes of the ports in `ottla.ports`: a clock, randomness and background work under control.

With `ottla.memory_files.MemoryFiles` as the disk, code that is given its ports runs without real
time, real chance and threads, so a test gives the same result every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from ottla.memory_files import MemoryFiles
from ottla.ports import (
    Background,
    Clock,
    Files,
    HelperProcesses,
    NoHelperProcesses,
    ObjectStore,
    Ports,
    Random,
)

T = TypeVar("T")

START_MS: Final = 1_700_000_000_000


class FakeClock:
    """A clock that stands still until the test changes `now_ms`, the wall time.

    Monotonic time starts at 0, so that code which mixes up the two is found.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self._start_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> float:
        return float(self.now_ms - self._start_ms)


class FakeRandom:
    """Returns ids that count up from 1. Numbers come from `pick`, which is given the limit."""

    def __init__(self, pick: Callable[[int], int] = lambda limit: 0) -> None:
        self.pick = pick
        self.ids = 0

    def uuid(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    def below(self, limit: int) -> int:
        return self.pick(limit)


class InlineBackground:
    """Does the work, and delivers its result, before `submit` returns."""

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        result: T | OSError
        try:
            result = work()
        except OSError as error:
            result = error
        done(result)


class QueuedBackground:
    """Keeps the work until the test calls `run`."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        self.waiting.append(lambda: InlineBackground().submit(work, done))

    def run(self) -> None:
        """Do the waiting work, and the work that it submits."""
        while self.waiting:
            self.waiting.pop(0)()


def fake_ports(
    files: Files | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    background: Background | None = None,
    report: Callable[[str], None] = lambda message: None,
    helpers: HelperProcesses | None = None,
    object_store: ObjectStore | None = None,
) -> Ports:
    """Return ports for a whole node. By default the disk is in memory and work is done inline."""
    return Ports(
        files=MemoryFiles() if files is None else files,
        clock=FakeClock() if clock is None else clock,
        random=FakeRandom() if random is None else random,
        background=InlineBackground() if background is None else background,
        report=report,
        helpers=NoHelperProcesses() if helpers is None else helpers,
        object_store=object_store,
    )
