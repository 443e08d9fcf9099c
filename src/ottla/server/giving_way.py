"""Lets the broker and its clients have the processor whenever they want it, for helper processes.

On Linux a process with a lower priority still keeps a processor for its time slice, some
milliseconds, when a thread of somebody else becomes ready. It loses it at once to a thread with a
shorter slice. So a helper process asks for the longest slice there is (Linux 6.12).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from struct import Struct
from typing import Final

NICENESS: Final = 5
SLICE_MS: Final = 100

_SYSCALLS: Final = {"x86_64": 314, "aarch64": 274}
"""The number of `sched_setattr`, which Python's library does not have."""
_ATTRIBUTES: Final = Struct("=IIQiIQQQ")
"""Size, policy, flags, nice value, real-time priority, slice in ns, deadline, period."""


def give_way() -> None:
    """Do that for this thread, and the threads that it will start, as far as the system can."""
    with suppress(AttributeError, OSError):  # not everywhere, and not allowed everywhere
        os.nice(NICENESS)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        _take_long_slices()


def _take_long_slices() -> None:
    """Ask for the longest time slice. Older systems ignore it."""
    number = _SYSCALLS.get(os.uname().machine)
    if number is None or sys.platform != "linux":
        return
    import ctypes

    attributes = _ATTRIBUTES.pack(
        _ATTRIBUTES.size,
        os.SCHED_BATCH,
        0,
        os.getpriority(os.PRIO_PROCESS, 0),
        0,
        SLICE_MS * 1_000_000,
        0,
        0,
    )
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)
