"""Blocking system calls off the loop: a thread that fsyncs and unlinks while the loop serves.

Only calls that release the interpreter lock belong here; CPU-heavy Python in a thread would
starve the loop. Removing and syncing large files also takes much CPU time in the kernel. So the
thread is scheduled as a batch job: it gets its share of the CPU, but does not preempt the loop.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class BackgroundThread:
    """One thread, started with the first piece of work; results come back on the loop."""

    def __init__(self, wake_loop: Callable[[], None], name: str = "ottla-background") -> None:
        self._name = name
        self._wake_loop = wake_loop
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._finished: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Run `work` in the thread, then `done` with its result, or its OSError, on the loop.

        Any other exception is a bug. It is raised on the loop, which ends the broker.
        """

        def run() -> None:
            result: T | OSError
            try:
                result = work()
            except OSError as error:
                result = error
            except Exception as bug:
                self._finished.append(partial(_raise, bug))
                return
            self._finished.append(partial(done, result))

        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._work.put(run)

    def _run(self) -> None:
        schedule_as_batch_job()
        while (work := self._work.get()) is not None:
            work()
            self._wake_loop()

    def deliver(self) -> list[Callable[..., object]]:
        """Hand finished results over; called on the loop. Return what took them."""
        takers: list[Callable[..., object]] = []
        while self._finished:
            taker = self._finished.popleft()
            takers.append(taker)
            taker()
        return takers

    def stop(self) -> None:
        """Finish what was submitted and deliver it, with the work that this leads to."""
        while self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
            self.deliver()
        self.deliver()


def schedule_as_batch_job() -> None:
    """Let this thread not preempt the loop.

    On Linux only. Where that is not allowed it does its work all the same.
    """
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _raise(bug: Exception) -> None:
    raise bug
