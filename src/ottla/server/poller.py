"""Event APIs of the operating system, behind one small interface: epoll today.

The loop asks a poller for events as (file number, bits), and compares the bits with `readable`,
`writable` and `gone`. Another API (kqueue, poll) is another class with the same members.
"""

from __future__ import annotations

import select
from typing import Final

from ottla.network.stream import HANG_UP, READ, WRITE
from ottla.server.waiting import Events

_BITS: Final = {
    HANG_UP: select.EPOLLRDHUP,
    READ: select.EPOLLIN | select.EPOLLRDHUP,
    WRITE: select.EPOLLOUT | select.EPOLLRDHUP,
    READ | WRITE: select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP,
}


class EpollPoller:
    """Linux's epoll, level-triggered."""

    readable: Final = select.EPOLLIN
    writable: Final = select.EPOLLOUT
    gone: Final = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP

    def __init__(self) -> None:
        self._epoll = select.epoll()

    def register(self, fileno: int, interest: int) -> None:
        self._epoll.register(fileno, _BITS[interest])

    def modify(self, fileno: int, interest: int) -> None:
        self._epoll.modify(fileno, _BITS[interest])

    def unregister(self, fileno: int) -> None:
        self._epoll.unregister(fileno)

    def poll(self, timeout_s: float) -> Events:
        """Wait for events, at most `timeout_s` seconds; for ever if that is negative."""
        return self._epoll.poll(timeout_s)

    def close(self) -> None:
        self._epoll.close()
