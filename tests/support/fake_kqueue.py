"""The kqueue part of the module `select`, on Linux: as documented, and made of poll.

It keeps to what is easily forgotten: adding a filter again does not change its flags, deleting one
that is not there is an error, and a filter with KQ_EV_CLEAR tells each state of a socket once.
"""

from __future__ import annotations

import fcntl
import select
import struct
import termios
import time
from collections.abc import Sequence
from errno import ENOENT
from typing import NamedTuple

KQ_FILTER_READ = -1
KQ_FILTER_WRITE = -2
KQ_EV_ADD = 0x1
KQ_EV_DELETE = 0x2
KQ_EV_CLEAR = 0x20
KQ_EV_EOF = 0x8000


class kevent(NamedTuple):  # as it is called in `select`
    ident: int
    filter: int = KQ_FILTER_READ
    flags: int = KQ_EV_ADD


class kqueue:
    def __init__(self) -> None:
        self.filters: dict[tuple[int, int], int] = {}
        self._told: dict[tuple[int, int], object] = {}
        self.closed = False

    def control(
        self, changes: Sequence[kevent] | None, max_events: int, timeout: float | None = None, /
    ) -> list[kevent]:
        for change in changes or ():
            self._change(change)
        until = None if timeout is None else time.monotonic() + timeout
        while max_events:
            found = self._ready()
            if found or (until is not None and time.monotonic() >= until):
                return found[:max_events]
            select.select([], [], [], 0.001)
        return []

    def _change(self, change: kevent) -> None:
        key = change.ident, change.filter
        if change.flags & KQ_EV_DELETE:
            if key not in self.filters:
                raise OSError(ENOENT, "no such filter")
            del self.filters[key]
            self._told.pop(key, None)
        else:
            assert change.flags & KQ_EV_ADD
            self.filters.setdefault(key, change.flags)

    def _ready(self) -> list[kevent]:
        found = []
        for (ident, kind), flags in self.filters.items():
            poll = select.poll()
            poll.register(ident, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
            events = dict(poll.poll(0)).get(ident, 0)
            assert not events & select.POLLNVAL, "a filter of a closed descriptor"
            if kind == KQ_FILTER_WRITE:
                at_end = bool(events & (select.POLLHUP | select.POLLERR))
                is_ready = bool(events & select.POLLOUT) or at_end
            else:
                at_end = bool(events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR))
                is_ready = bool(events & select.POLLIN) or at_end
            if flags & KQ_EV_CLEAR and is_ready:
                state = (_unread_bytes(ident), at_end)
                is_ready = self._told.get((ident, kind)) != state
                self._told[ident, kind] = state
            if is_ready:
                found.append(kevent(ident, kind, KQ_EV_EOF if at_end else 0))
        return found

    def close(self) -> None:
        self.closed = True


def _unread_bytes(fd: int) -> int:
    try:
        return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])
    except OSError:  # a socket that listens
        return 0
