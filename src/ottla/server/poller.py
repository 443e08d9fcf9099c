"""Event APIs of the operating system, behind one small interface: epoll, kqueue or poll.

The loop asks a poller for events as (file number, bits), and compares the bits with `readable`,
`writable` and `gone`. Linux has epoll, macOS and the BSDs have kqueue; poll is everywhere, and
slower with many connections. All are level-triggered: what is not handled now comes again.
"""

from __future__ import annotations

import os
import select
from typing import Any, Final, Protocol

from ottla.network.stream import HANG_UP, READ, WRITE
from ottla.server.event_wait import Events

VARIABLE: Final = "OTTLA_POLLER"
"""The environment variable with which tests choose a poller."""

_MOST_EVENTS: Final = 1024


class EventPoller(Protocol):
    """Watches file descriptors for what the loop and the engine wait for."""

    readable: int
    writable: int
    gone: int

    def register(self, fileno: int, interest: int) -> None: ...

    def modify(self, fileno: int, interest: int) -> None: ...

    def unregister(self, fileno: int) -> None: ...

    def poll(self, timeout_s: float) -> Events:
        """Wait for events, at most `timeout_s` seconds; for ever if that is negative."""
        ...

    def has_events(self) -> bool:
        """Return whether there are events now. They stay where they are."""
        ...

    def close(self) -> None: ...


def make_poller() -> EventPoller:
    """Return the best poller of this system, or the one that VARIABLE names."""
    name = os.environ.get(VARIABLE, "")
    if name == "epoll" or (not name and hasattr(select, "epoll")):
        return EpollPoller()
    if name == "kqueue" or (not name and hasattr(select, "kqueue")):
        return KqueuePoller()
    return PollPoller()


class EpollPoller:
    """Linux's epoll."""

    def __init__(self) -> None:
        hang_up = select.EPOLLRDHUP
        self.readable = select.EPOLLIN
        self.writable = select.EPOLLOUT
        self.gone = select.EPOLLHUP | select.EPOLLERR | hang_up
        self._bits = {
            HANG_UP: hang_up,
            READ: select.EPOLLIN | hang_up,
            WRITE: select.EPOLLOUT | hang_up,
            READ | WRITE: select.EPOLLIN | select.EPOLLOUT | hang_up,
        }
        self._epoll = select.epoll()
        self.poll = self._epoll.poll
        self.unregister = self._epoll.unregister
        self._self = select.poll()
        self._self.register(self._epoll.fileno(), select.POLLIN)

    def register(self, fileno: int, interest: int) -> None:
        self._epoll.register(fileno, self._bits[interest])

    def modify(self, fileno: int, interest: int) -> None:
        self._epoll.modify(fileno, self._bits[interest])

    def has_events(self) -> bool:
        return bool(self._self.poll(0))

    def close(self) -> None:
        self._epoll.close()


class PollPoller:
    """POSIX poll. Outside Linux it does not tell that a peer only sends no more."""

    def __init__(self) -> None:
        hang_up = getattr(select, "POLLRDHUP", 0)
        self.readable = select.POLLIN
        self.writable = select.POLLOUT
        self.gone = select.POLLHUP | select.POLLERR | select.POLLNVAL | hang_up
        self._bits = {
            HANG_UP: hang_up,
            READ: select.POLLIN | hang_up,
            WRITE: select.POLLOUT | hang_up,
            READ | WRITE: select.POLLIN | select.POLLOUT | hang_up,
        }
        self._poll = select.poll()
        self.unregister = self._poll.unregister

    def register(self, fileno: int, interest: int) -> None:
        self._poll.register(fileno, self._bits[interest])

    def modify(self, fileno: int, interest: int) -> None:
        self._poll.modify(fileno, self._bits[interest])

    def poll(self, timeout_s: float) -> Events:
        # Rounded up, or the loop would wake up before a timer is due, and again and again.
        return self._poll.poll(None if timeout_s < 0 else -int(-timeout_s * 1000 // 1))

    def has_events(self) -> bool:
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Do nothing: there is nothing of the operating system's to close."""


class KqueuePoller:
    """The kqueue of macOS and the BSDs.

    A descriptor has a filter for reading and one for writing. A channel that only waits for its
    peer to hang up has the one for reading, edge-triggered: data that stays unread is reported
    once, and dropped here. `api` is the module `select`, or what tests use in its place.
    """

    def __init__(self, api: Any = select) -> None:
        self.readable, self.writable, self.gone = 1, 2, 4
        self._api = api
        self._interests: dict[int, int] = {}
        self._kept: Events = []
        """Events that `has_events` has found: kqueue reports some of them only once."""
        self._kqueue = api.kqueue()

    def register(self, fileno: int, interest: int) -> None:
        self._interests[fileno] = interest
        self._change(self._added(fileno, interest))

    def modify(self, fileno: int, interest: int) -> None:
        # Deleted and added: adding alone does not make an edge-triggered filter level-triggered.
        self._change(self._deleted(fileno, self._interests[fileno]))
        self.register(fileno, interest)

    def unregister(self, fileno: int) -> None:
        self._change(self._deleted(fileno, self._interests.pop(fileno)))

    def _added(self, fileno: int, interest: int) -> list[Any]:
        api = self._api
        flags = api.KQ_EV_ADD if interest & READ else api.KQ_EV_ADD | api.KQ_EV_CLEAR
        changes = []
        if interest & READ or interest == HANG_UP:
            changes.append(api.kevent(fileno, api.KQ_FILTER_READ, flags))
        if interest & WRITE:
            changes.append(api.kevent(fileno, api.KQ_FILTER_WRITE, api.KQ_EV_ADD))
        return changes

    def _deleted(self, fileno: int, interest: int) -> list[Any]:
        api = self._api
        changes = []
        if interest & READ or interest == HANG_UP:
            changes.append(api.kevent(fileno, api.KQ_FILTER_READ, api.KQ_EV_DELETE))
        if interest & WRITE:
            changes.append(api.kevent(fileno, api.KQ_FILTER_WRITE, api.KQ_EV_DELETE))
        return changes

    def _change(self, changes: list[Any]) -> None:
        self._kqueue.control(changes, 0, 0)

    def poll(self, timeout_s: float) -> Events:
        kept, self._kept = self._kept, []
        events = {fd: bits for fd, bits in kept if fd in self._interests}
        if events:
            return list(events.items())
        found = self._kqueue.control(None, _MOST_EVENTS, None if timeout_s < 0 else timeout_s)
        for event in found:
            bits = self._bits(event)
            if bits:
                events[event.ident] = events.get(event.ident, 0) | bits
        return list(events.items())

    def has_events(self) -> bool:
        self._kept = self.poll(0)
        return bool(self._kept)

    def _bits(self, event: Any) -> int:
        api = self._api
        at_end = bool(event.flags & api.KQ_EV_EOF)
        if event.filter == api.KQ_FILTER_WRITE:
            return self.writable | self.gone if at_end else self.writable
        if self._interests.get(event.ident, HANG_UP) & READ:
            return self.readable  # the end of the stream is read like data
        return self.gone if at_end else 0

    def close(self) -> None:
        self._kqueue.close()
