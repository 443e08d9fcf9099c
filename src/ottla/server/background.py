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
        """Run `work` in the thread, then `done` with its result, or its OSError, on the loop."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._work.put(job_of(work, done, self._finished))

    def _run(self) -> None:
        do_jobs(self._work, self._wake_loop)

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

    def end(self) -> None:
        """Finish what was submitted, and deliver nothing: the broker is gone."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        self._finished.clear()


def job_of(
    work: Callable[[], T], done: Callable[[T | OSError], None], finished: deque[Callable[[], None]]
) -> Callable[[], None]:
    """Return a function for a thread: it does the work and leaves a call of `done` in `finished`.

    `done` gets the result, or the OSError. Any other exception is a bug. The loop raises it, which
    ends the broker.
    """

    def job() -> None:
        result: T | OSError
        try:
            result = work()
        except OSError as error:
            result = error
        except Exception as bug:
            finished.append(partial(_raise, bug))
            return
        finished.append(partial(done, result))

    return job


def do_jobs(jobs: SimpleQueue[Callable[[], None] | None], wake_loop: Callable[[], None]) -> None:
    """Do jobs in this thread until None comes, and wake the loop after each."""
    _schedule_as_batch_job()
    while (job := jobs.get()) is not None:
        job()
        wake_loop()


def _schedule_as_batch_job() -> None:
    """Let this thread not preempt the loop.

    On Linux only. Where that is not allowed it does its work all the same.
    """
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _raise(bug: Exception) -> None:
    raise bug
