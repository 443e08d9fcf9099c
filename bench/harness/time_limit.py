"""A limit for the time of one step, so that a run cannot hang."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from harness.problem import BenchError


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise BenchError in the block if it takes longer than this.

    It interrupts the main thread of Python, between two calls of C code. Calls that wait in C need
    a limit of their own.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise BenchError(f"it took more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
