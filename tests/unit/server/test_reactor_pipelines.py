"""Clients that pipeline hundreds of small requests hold the loop for no longer than others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.network.buffers import RequestBuffers
from ottla.network.limits import ConnectionLimits
from ottla.network.receiver import CHUNK_BYTES, FEW_REPLIES
from ottla.server import reactor as reactor_module
from ottla.server.event_wait import Events
from ottla.server.reactor import (
    FEW_EVENTS,
    LARGE_MS_PER_BYTE,
    MOST_MS,
    MUCH_BYTES,
    NEXT_MS_PER_BYTE,
    WRITE_MS,
    Reactor,
)
from tests.support.network import EchoNode, FakePoller, FakeStream, framed

pytestmark = pytest.mark.interpreted  # a compiled reactor takes no other node
REQUESTS = 300


class SlowNode(EchoNode):
    """Takes a millisecond for each request, and notes how many each wake-up handles."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.counts: list[int] = [0]
        self.appended: list[object] = []
        """What a wake-up has to write when it ends."""
        self.takes_ms = 1.0
        self.received = self.most_received = 0
        """How often this wake-up has received, and the one that did so most."""
        self.appends = 0
        """How many partitions a request appends to."""
        self.loop_stalls = SimpleNamespace(add=lambda *_: None, note=lambda *_: None)

    def advance(self) -> None:
        self.monotonic_ms = self.now_ms
        self.appended.clear()
        self.counts.append(0)
        self.most_received = max(self.most_received, self.received)
        self.received = 0

    def handle(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        super().handle(connection, buffer, view, start, end)
        self.now_ms += self.takes_ms
        self.appended += [self] * self.appends
        self.counts[-1] += 1


class SlowStream(FakeStream):
    """Has 64 KB whenever a connection receives, and to copy them takes a millisecond."""

    def __init__(self, node: SlowNode) -> None:
        super().__init__()
        self.node = node

    def recv_into(self, view: memoryview, /) -> int:
        self.node.now_ms += 1
        self.node.received += 1
        return super().recv_into(view[: 64 * 1024])


class Poller(FakePoller):
    """Tells of everything that has arrived; ends the loop when nothing has for a while."""

    readable, writable, gone = 1, 2, 4

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[FakeStream] = []
        self.idle = 0
        self.reactor: Reactor

    def poll(self, timeout_s: float) -> Events:
        events = [(each.fileno(), self.readable) for each in self.streams if each.inbox]
        self.idle = 0 if events else self.idle + 1
        if self.idle > 1000 and not self.reactor.engine.has_work:
            self.reactor._end()
        return events


def run_pipelines(
    monkeypatch: pytest.MonkeyPatch,
    node: SlowNode,
    clients: int,
    size: int = 0,
    requests: int = REQUESTS,
    make_stream: Callable[[], FakeStream] = FakeStream,
) -> None:
    """Let clients pipeline requests of at least this size, until all are answered."""
    poller = Poller()
    monkeypatch.setattr(reactor_module, "make_poller", lambda: poller)
    monkeypatch.setattr(FakeStream, "numbers", 10_000)  # unlike the waker's
    padding = bytes(size)
    limits = ConnectionLimits(100, 100, {}, -1)
    poller.reactor = Reactor(cast(Node, node), [], limits, RequestBuffers(10**8), 10**6)
    for number in range(clients):
        stream = make_stream()
        assert poller.reactor.engine.accept(stream, "host", "PLAINTEXT") is not None
        stream.inbox += framed(*requests_of(number, requests, padding))
        poller.streams.append(stream)
    poller.reactor.run()
    assert len(node.handled) == clients * requests
    for number, stream in enumerate(poller.streams):
        assert stream.sent == framed(*requests_of(number, requests, padding))


def requests_of(number: int, requests: int, padding: bytes) -> Iterator[bytes]:
    return (b"request %d of %d" % (each, number) + padding for each in range(requests))


@pytest.mark.parametrize("clients", [1, FEW_EVENTS, 50])
def test_a_wake_up_leaves_pipelined_requests_to_the_next(
    monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    node = SlowNode()
    run_pipelines(monkeypatch, node, clients)
    # A connection's last few are handled whatever the time is, and a few connections are.
    assert max(node.counts) <= MOST_MS + (FEW_EVENTS + 2) * FEW_REPLIES


@pytest.mark.parametrize(
    ("clients", "size"),
    [
        (1, 2 * MUCH_BYTES),
        (FEW_EVENTS, 2 * MUCH_BYTES),
        (50, 2 * MUCH_BYTES),
        (FEW_EVENTS, 2 * CHUNK_BYTES),
    ],
)
def test_a_wake_up_leaves_requests_that_are_not_small_to_the_next(
    monkeypatch: pytest.MonkeyPatch, clients: int, size: int
) -> None:
    node = SlowNode()
    run_pipelines(monkeypatch, node, clients, size, requests=20)
    # One has made it late, and one that was left is handled in any case.
    assert max(node.counts) <= MOST_MS + 3


@pytest.mark.parametrize("clients", [1, FEW_EVENTS, 50])
def test_a_wake_up_counts_the_writes_that_it_has_to_do(
    monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    node = SlowNode()
    node.takes_ms, node.appends = 0, round(1 / WRITE_MS)
    run_pipelines(monkeypatch, node, clients, 2 * MUCH_BYTES, requests=20)
    assert max(node.counts) <= MOST_MS + 3


def test_a_wake_up_counts_the_writes_of_large_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    node = SlowNode()
    node.takes_ms = 0
    size = 900_000
    run_pipelines(monkeypatch, node, FEW_EVENTS, size, requests=5)
    assert max(node.counts) <= MOST_MS / (LARGE_MS_PER_BYTE * size) + 3 < FEW_EVENTS


@pytest.mark.parametrize("clients", [FEW_EVENTS, 50])
def test_a_wake_up_receives_parts_of_few_large_requests(
    monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    """Their memory grows as they arrive, which takes a millisecond or two for each."""
    node = SlowNode()
    node.takes_ms = 0
    run_pipelines(
        monkeypatch, node, clients, 900_000, requests=1, make_stream=lambda: SlowStream(node)
    )
    assert node.most_received <= MOST_MS + 2


@pytest.mark.parametrize("clients", [2, FEW_EVENTS, 50])
def test_requests_that_were_received_and_new_ones_take_turns(
    monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    node = SlowNode()
    node.takes_ms = MOST_MS + 1
    run_pipelines(monkeypatch, node, clients, 2 * MUCH_BYTES, requests=20)
    assert max(node.counts) == 1


class WritingNode(SlowNode):
    """Writes what was appended when it settles."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_ms, self.appends = 0.5, 400

    def settle_replies(self) -> None:
        self.now_ms += WRITE_MS / 2 * len(self.appended)  # less than was expected
        self.appended.clear()
        super().settle_replies()


def test_a_large_request_does_not_follow_one_that_was_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = WritingNode()
    run_pipelines(monkeypatch, node, FEW_EVENTS, round(MOST_MS / NEXT_MS_PER_BYTE), requests=5)
    assert max(node.counts) == 1
