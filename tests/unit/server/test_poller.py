"""All event APIs tell the same: epoll, poll, and kqueue as its documentation says."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ottla.network.stream import HANG_UP, READ, WRITE
from ottla.server.poller import (
    VARIABLE,
    EpollPoller,
    EventPoller,
    KqueuePoller,
    PollPoller,
    make_poller,
)
from tests.support import fake_kqueue

POLLERS: dict[str, Callable[[], EventPoller]] = {
    "epoll": EpollPoller,
    "poll": PollPoller,
    "kqueue": lambda: KqueuePoller(fake_kqueue),
}


@pytest.fixture(params=POLLERS)
def poller(request: pytest.FixtureRequest) -> Iterator[EventPoller]:
    made = POLLERS[request.param]()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield two ends of a TCP connection; the first is the broker's."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        theirs = stack.enter_context(socket.create_connection(listener.getsockname()))
        ours = stack.enter_context(listener.accept()[0])
        ours.setblocking(False)
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


def told(poller: EventPoller, timeout_s: float = 1) -> list[tuple[int, set[str]]]:
    names = {"readable": poller.readable, "writable": poller.writable, "gone": poller.gone}
    return [
        (fd, {name for name, bit in names.items() if bits & bit})
        for fd, bits in poller.poll(timeout_s)
    ]


def test_nothing_happens(poller: EventPoller, pair: Pair) -> None:
    ours, _ = pair
    poller.register(ours.fileno(), READ)
    assert poller.poll(0) == []
    assert poller.poll(0.0005) == []


def test_data_is_told_until_it_is_read(poller: EventPoller, pair: Pair) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READ)
    theirs.send(b"data")
    assert told(poller) == [(ours.fileno(), {"readable"})]
    assert told(poller, -1) == [(ours.fileno(), {"readable"})]
    ours.recv(100)
    assert poller.poll(0) == []


def test_asking_for_events_takes_none(poller: EventPoller, pair: Pair) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), HANG_UP)
    assert not poller.has_events()
    theirs.close()
    while not poller.has_events():  # it takes a moment
        pass
    assert poller.has_events()
    assert told(poller) == [(ours.fileno(), {"gone"})]


def test_room_is_told_to_who_wants_to_write(poller: EventPoller, pair: Pair) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READ)
    poller.modify(ours.fileno(), WRITE)
    theirs.send(b"data that nobody reads now")
    assert told(poller) == [(ours.fileno(), {"writable"})]
    poller.modify(ours.fileno(), READ | WRITE)
    assert told(poller) == [(ours.fileno(), {"readable", "writable"})]


def test_data_does_not_wake_who_only_waits_for_the_end(poller: EventPoller, pair: Pair) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READ)
    theirs.send(b"data")
    poller.modify(ours.fileno(), HANG_UP)
    assert poller.poll(0.01) == []
    theirs.send(b"more data")
    assert poller.poll(0.01) == []
    poller.modify(ours.fileno(), READ)
    assert told(poller) == [(ours.fileno(), {"readable"})], "it has not been lost"


def test_the_end_is_told_to_who_only_waits_for_it(poller: EventPoller, pair: Pair) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), HANG_UP)
    theirs.send(b"data")
    assert poller.poll(0) == []
    theirs.close()
    assert told(poller) == [(ours.fileno(), {"gone"})]


def test_the_end_is_read_like_data(poller: EventPoller, pair: Pair) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READ)
    theirs.send(b"data")
    theirs.close()
    for expected in (b"data", b""):
        ((fd, what),) = told(poller)
        assert fd == ours.fileno()
        assert "readable" in what
        assert ours.recv(100) == expected


def test_what_is_not_registered_is_not_told(poller: EventPoller, pair: Pair) -> None:
    ours, theirs = pair
    for interest in (HANG_UP, READ, WRITE, READ | WRITE):
        poller.register(ours.fileno(), interest)
        poller.unregister(ours.fileno())
    theirs.send(b"data")
    assert poller.poll(0) == []


def test_kqueue_keeps_no_filters() -> None:
    poller = KqueuePoller(fake_kqueue)
    first, second = socket.socketpair()
    with first, second:
        for interest in (HANG_UP, READ, WRITE, READ | WRITE):
            poller.register(first.fileno(), interest)
            poller.modify(first.fileno(), HANG_UP)
            poller.unregister(first.fileno())
            assert poller._kqueue.filters == {}
    poller.close()
    assert poller._kqueue.closed


def test_the_best_that_there_is_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert isinstance(make_poller(), EpollPoller)
    monkeypatch.delattr(select, "epoll")
    assert isinstance(make_poller(), PollPoller)
    monkeypatch.setattr(select, "kqueue", fake_kqueue.kqueue, raising=False)
    assert isinstance(make_poller(), KqueuePoller)
    monkeypatch.setenv(VARIABLE, "poll")
    assert isinstance(make_poller(), PollPoller)
