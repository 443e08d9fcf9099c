"""A copy of a helper process, made by fork, which works beside it on a second core.

Python's threads take turns where work is many short calls, so the second core needs a process. A
copy needs no start, and it has whatever the process has at that moment, in the same memory until
one of them changes it. Requests and answers are a length and bytes; answers go through a pipe that
holds a large one, so that the copy can begin with the next request.

The copy has the low priority of the helper process. With the lowest one (SCHED_IDLE) a clean on a
busy machine would wait for it. If all cores are busy, the process works alone.

The copy ends when the process closes its end, or is gone. At the fork no other thread may be at
work.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import time
import warnings
from collections.abc import Callable
from select import select
from struct import Struct
from typing import Final

from ottla.ports import Buffer, TwinGone

_LENGTH: Final = Struct(">Q")
_PIPE_BYTES: Final = 1024 * 1024
_PATIENCE_S: Final = 0.25
"""How long the first answer may take."""
_LEAST_PATIENCE_S: Final = 0.05
_PATIENCE: Final = 4
"""How many times as long as the fastest one another answer may take."""
_TIME_LIMIT_S: Final = 120
"""The copy ends after so long without a new request that it could take."""


class TwinProcess:
    """The Twin port."""

    def __init__(self, serve: Callable[[Buffer], bytes], prepare: Callable[[], None]) -> None:
        """Copy this process. In the copy, call `prepare`, then `serve` for each request."""
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        try:
            fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # the user has too many of them; a smaller one only makes it wait more often
        _trim_memory()
        gc.freeze()  # a collection in either process would copy the memory of all objects
        with warnings.catch_warnings():  # of other threads, which are idle
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            os.close(self._requests)
            os.close(self._answers)
            _run(serve, prepare, requests, answers)
        gc.unfreeze()
        self._waiting = 0
        """How many requests were not answered."""
        self._began_s = 0.0
        """When the copy could begin with the one that it answers next."""
        self._patience_s = _PATIENCE_S
        self._is_timed = False
        """True if the time that the next answer takes says how long others may take."""
        os.close(requests)
        os.close(answers)

    def ask(self, request: bytes) -> None:
        """Send a request."""
        if not self._waiting:
            self._began_s = time.monotonic()
        self._waiting += 1
        try:
            _write(self._requests, request)
        except BrokenPipeError:
            raise TwinGone from None

    def is_ready(self) -> bool:
        """Return True if an answer begins, or the copy has ended."""
        return bool(select([self._answers], [], [], 0)[0])

    def is_ready_soon(self) -> bool:
        """Wait a moment until an answer begins, or the copy has ended."""
        self._is_timed = True
        left_s = max(self._began_s + self._patience_s - time.monotonic(), 0)
        return bool(select([self._answers], [], [], left_s)[0])

    def answer(self) -> Buffer:
        """Wait for the next answer."""
        found = _read(self._answers)
        if found is None:
            raise TwinGone
        now_s = time.monotonic()
        took_s, self._began_s = now_s - self._began_s, now_s
        self._waiting -= 1
        if self._is_timed:
            self._patience_s = min(self._patience_s, max(_PATIENCE * took_s, _LEAST_PATIENCE_S))
            self._is_timed = False
        return found

    def close(self) -> None:
        """End the copy, and wait until it has ended."""
        if self._pid:
            os.close(self._requests)
            os.close(self._answers)
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _trim_memory() -> None:
    """Return free memory to the system: both processes would use it again, each its own copy."""
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass  # only glibc has it


def _run(
    serve: Callable[[Buffer], bytes], prepare: Callable[[], None], requests: int, answers: int
) -> None:
    """Serve in the copy until the other process is gone; never return."""
    status = 1
    try:
        prepare()
        signal.alarm(_TIME_LIMIT_S)
        while (request := _read(requests)) is not None:
            signal.alarm(_TIME_LIMIT_S)
            _write(answers, serve(request))
        status = 0
    except BrokenPipeError:
        status = 0
    finally:
        os._exit(status)  # whatever the other process had to do at its end is not for this one


def _read(pipe: int) -> bytearray | None:
    """Return the next message; None if the other end is closed."""
    head = _read_bytes(pipe, _LENGTH.size)
    return None if head is None else _read_bytes(pipe, _LENGTH.unpack(head)[0])


def _read_bytes(pipe: int, length: int) -> bytearray | None:
    data = bytearray(length)
    view, filled = memoryview(data), 0
    while filled < length:
        count = os.readv(pipe, [view[filled:]])
        if not count:
            return None
        filled += count
    return data


def _write(pipe: int, message: bytes) -> None:
    view = memoryview(_LENGTH.pack(len(message)) + message)
    while view:
        view = view[os.write(pipe, view) :]
