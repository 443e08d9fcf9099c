"""Ctrl-C and SIGTERM set an event, which loads and pipelines check between calls of Spark.

An exception from a signal handler could interrupt a call to Java before its answer is read. The
next call of the thread would then read that answer.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from types import FrameType


class StopEvent(threading.Event):
    """An event that a signal handler may set. It is never cleared.

    `threading.Event.set` takes a lock. If the interrupted thread holds it in `wait`, that would
    be a deadlock.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()  # `put` is safe while `get` is interrupted

    def set(self) -> None:
        self._is_set = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            with contextlib.suppress(Empty):
                self._wakes.get(timeout=timeout)
                self._wakes.put(None)  # for other waiting threads
        return self._is_set


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set. A second signal raises KeyboardInterrupt.

    Only the main thread receives signals. In other threads nothing sets the event.
    """
    stop = StopEvent()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
