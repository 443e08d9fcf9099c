"""Ctrl-C and SIGTERM ask for an end; what runs looks for it between two calls of Spark.

An exception out of a signal handler, as Python and PySpark have it, would leave a call to Java
half answered: the thread's next call gets the answer of that one.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; the second of them interrupts, as if without this.

    In another thread than the main one, which alone may hear signals, nothing sets it.
    """
    stop = threading.Event()

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
