"""When the loop sleeps, and when it stays awake for a moment: a real epoll, a clock set by hand."""

from __future__ import annotations

import select
from collections.abc import Iterator
from os import close, eventfd, eventfd_read, eventfd_write

import pytest

from ottla.server.event_wait import AWAKE_MS, SHORT_WAITS, Events, EventWait

AWAKE_S = AWAKE_MS / 1000
LONG_S = 10 * AWAKE_S
LOOKS = 5


class Waits:
    """A file descriptor waited for, the timeouts that were polled with, and the time."""

    def __init__(self) -> None:
        self.fd = eventfd(0)
        self.epoll = select.epoll()
        self.epoll.register(self.fd, select.EPOLLIN)
        self.polled: list[float] = []
        self.now_s = self.woke_s = 1.0
        self.look_s = AWAKE_S / LOOKS
        self.waiting = EventWait(self.poll, lambda: self.now_s * 1000, lambda now_ms: LONG_S)

    def poll(self, timeout_s: float) -> Events:
        self.polled.append(timeout_s)
        self.now_s += self.look_s
        self.woke_s = self.now_s
        return self.epoll.poll(min(timeout_s, 0.001))

    def wait(self, *, awake: bool = True) -> Events:
        self.polled.clear()
        if awake:
            return self.waiting.wait(self.now_s * 1000, self.woke_s * 1000)
        return self.waiting.sleep(self.now_s * 1000)

    def wait_for_event(self, *, awake: bool = True) -> None:
        eventfd_write(self.fd, 1)
        assert self.wait(awake=awake) == [(self.fd, select.EPOLLIN)]
        eventfd_read(self.fd)

    def make_short_waits(self, count: int = SHORT_WAITS) -> None:
        for _ in range(count):
            self.wait_for_event()
            assert self.polled == [LONG_S]


@pytest.fixture
def waits() -> Iterator[Waits]:
    made = Waits()
    yield made
    made.epoll.close()
    close(made.fd)


def test_after_short_waits_the_next_event_is_met_awake(waits: Waits) -> None:
    waits.make_short_waits()

    waits.wait_for_event()

    assert waits.polled == [0]


def test_nothing_comes_so_it_sleeps_after_a_moment_and_at_once_the_next_time(waits: Waits) -> None:
    waits.make_short_waits()

    assert waits.wait() == []
    assert waits.polled[-1] == LONG_S
    assert set(waits.polled[:-1]) == {0}
    assert LOOKS <= len(waits.polled) - 1 <= LOOKS + 1

    assert waits.wait() == []
    assert waits.polled == [LONG_S]


def test_one_long_wait_among_short_ones_keeps_it_asleep(waits: Waits) -> None:
    waits.make_short_waits(SHORT_WAITS - 1)
    waits.look_s = LONG_S
    waits.wait_for_event()
    waits.look_s = 0.0

    waits.make_short_waits()


def test_it_is_not_awake_where_that_is_not_allowed(waits: Waits) -> None:
    waits.make_short_waits()

    waits.wait_for_event(awake=False)

    assert waits.polled == [LONG_S]


def test_a_wait_that_must_not_be_awake_ends_the_row_of_short_ones(waits: Waits) -> None:
    waits.make_short_waits(SHORT_WAITS - 1)
    waits.wait_for_event(awake=False)

    waits.make_short_waits()
