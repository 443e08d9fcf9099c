"""Wakes the event loop up from other threads and from signal handlers."""

from __future__ import annotations

import os
import sys
from threading import RLock


class Waker:
    """A descriptor that becomes readable: an eventfd on Linux, a pipe elsewhere."""

    def __init__(self) -> None:
        self._lock = RLock()  # the same thread may come again, by a signal handler
        self._is_closed = False
        if hasattr(os, "eventfd"):
            self.fd = self._write_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._signal = (1).to_bytes(8, sys.byteorder)
        else:
            self.fd, self._write_fd = os.pipe()
            os.set_blocking(self.fd, False)
            os.set_blocking(self._write_fd, False)
            self._signal = b"\0"

    def wake(self) -> None:
        """Make the descriptor readable; safe from any thread, and after `close`."""
        with self._lock:
            if self._is_closed:
                return
            try:
                os.write(self._write_fd, self._signal)
            except BlockingIOError:  # it is full, so it is readable already
                return

    def clear(self) -> None:
        """Make the descriptor unreadable until the next `wake`."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            os.close(self.fd)
            if self._write_fd != self.fd:
                os.close(self._write_fd)
