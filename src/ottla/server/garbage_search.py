"""A copy of this process that finds out how much garbage there is, while the process goes on.

Python can only look for garbage among all objects at once, and holds the process meanwhile. A copy,
made by `fork`, has the same objects, and looks at them on another core. It frees nothing, runs no
finalizers, has no open files and gives way to everybody. If memory is short, Linux ends it before
others. To make the copy takes 2 ms per 100 MB.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn
from warnings import catch_warnings, simplefilter
from weakref import ref

_LITTLE: Final = 10
_MUCH: Final = 11
"""The copy's exit codes."""


class GarbageSearch:
    """A search that has begun. It finds out whether there are so many objects of garbage."""

    def __init__(self, least: int) -> None:
        """Make the copy; raise OSError if that is not possible."""
        with catch_warnings():
            # The copy has no other thread, and needs no lock of any.
            simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            _search(least)

    def result(self) -> bool | None:
        """Return whether there is so much garbage; None until that is known.

        False if the copy was ended by somebody: then nobody knows.
        """
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # somebody else has taken its exit code
            return False
        return os.waitstatus_to_exitcode(status) == _MUCH if pid else None

    def end(self) -> None:
        """End the copy."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _search(least: int) -> NoReturn:
    """Look at all objects, as the copy; end with the result as exit code."""
    try:
        gc.disable()  # none begins by itself
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        _give_way()
        _count(least)
    finally:
        os._exit(_LITTLE)


def _give_way() -> None:
    with suppress(OSError):
        os.nice(19)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _count(least: int) -> None:
    """End the process as soon as there are `least` objects of garbage, or when all are counted.

    Python names each object of garbage on stderr before it calls anything for one of them. Then
    come callbacks of weak references, in the order of the objects: the first one is that of `mark`.
    """
    gc.callbacks.clear()
    gc.freeze()
    mark = _Garbage()
    watching = ref(mark, _end)
    gc.collect()  # it is older than all others now
    gc.unfreeze()
    del mark
    sys.stderr = _Counter(least)
    gc.set_debug(gc.DEBUG_COLLECTABLE)
    gc.collect()
    del watching


class _Garbage:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


def _end(_: object) -> None:
    os._exit(_LITTLE)


class _Counter:
    """Counts what is written to it, instead of stderr."""

    def __init__(self, least: int) -> None:
        self._left = least

    def write(self, text: str) -> None:
        self._left -= 1
        if self._left < 0:  # the mark is one of them
            os._exit(_MUCH)
