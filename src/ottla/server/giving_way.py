"""Lets the broker and its clients have the processor whenever they want it, for helper processes.

On Linux a process with a lower priority still keeps a processor for its time slice, some
milliseconds, when a thread of somebody else becomes ready. It loses it at once to a thread with a
shorter slice. So a helper process asks for the longest slice there is (Linux 6.12).

That counts only if the other thread has not had more than its share lately. Otherwise it waits for
the next tick (4 ms), even if another processor is idle. It has had less than its share if the share
of the helper process is small. Linux gives each session one (autogroup). So a process for whose
work no client waits leads a session, and that takes a small one.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from struct import Struct
from typing import Final

NICENESS: Final = 5
BACKGROUND_NICENESS: Final = 10
"""For work that no client waits for, and for its session.

It has a tenth of a processor that others want as well. With less, the logs of a busy machine could
grow faster than they are cleaned.
"""
SLICE_MS: Final = 100

_SESSION: Final = "/proc/self/autogroup"
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.1
"""Linux accepts one change in a tenth of a second from all users together."""

_SYSCALLS: Final = {"x86_64": 314, "aarch64": 274}
"""The number of `sched_setattr`, which Python's library does not have."""
_ATTRIBUTES: Final = Struct("=IIQiIQQQ")
"""Size, policy, flags, nice value, real-time priority, slice in ns, deadline, period."""


def give_way(*, is_background: bool = False) -> None:
    """Do that for this thread, and the threads that it will start, as far as the system can.

    A process in the background must be alone in its session.
    """
    if is_background:
        _take_small_share()
    with suppress(AttributeError, OSError):  # not everywhere, and not allowed everywhere
        os.nice(BACKGROUND_NICENESS if is_background else NICENESS)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        _take_long_slices()


def _take_small_share() -> None:
    """Let the session of this process have a small share of the processor, if sessions have any."""
    for _ in range(_ATTEMPTS):
        try:
            with open(_SESSION, "w") as session:
                session.write(str(BACKGROUND_NICENESS))
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            return  # not everywhere, and not allowed everywhere
        else:
            return


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
