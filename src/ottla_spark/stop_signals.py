"""Ctrl-C and SIGTERM ask for an end; what runs looks for it between two calls of Spark.

An exception out of a signal handler, as Python and PySpark have it, would leave a call to Java
half answered: the thread's next call gets the answer of that one.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from types import FrameType


class Asked(threading.Event):
    """An event that the handler of a signal may set, once and for all.

    Setting threading's own takes a lock, which the thread that the handler interrupts holds
    for moments of its `wait`: both would stand still for good.
    """

    def __init__(self) -> None:
        super().__init__()
        self._asked = False
        self._wakes: SimpleQueue[None] = SimpleQueue()  # whose `put` may interrupt its `get`

    def set(self) -> None:
        self._asked = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        return self._asked

    def wait(self, timeout: float | None = None) -> bool:
        if not self._asked:
            with contextlib.suppress(Empty):
                self._wakes.get(timeout=timeout)
                self._wakes.put(None)  # for others who wait
        return self._asked


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; the second of them interrupts, as if without this.

    In another thread than the main one, which alone may hear signals, nothing sets it.
    """
    stop = Asked()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
