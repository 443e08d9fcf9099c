"""Small requests do not wait for large replies: the loop sends those in pieces, after the rest."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.node import Node
from ottla.log.segment.file_slice import FileSlice
from ottla.memory_files import MemoryFiles
from ottla.network.buffers import RequestBuffers
from ottla.network.channel import SEND_BYTES, Channel
from ottla.network.limits import ConnectionLimits
from ottla.network.stream import WRITE
from ottla.ports import Buffer
from ottla.server import reactor as reactor_module
from ottla.server.event_wait import Events
from ottla.server.reactor import Reactor
from tests.support.network import EchoNode, FakePoller, FakeStream, framed

pytestmark = pytest.mark.interpreted  # a compiled reactor takes no other node

PIECES = 3
REQUEST = b"a request"


class TimelessNode(EchoNode):
    clock = SimpleNamespace(monotonic_ms=lambda: 0.0)

    def advance(self) -> None:
        pass


class ScriptedPoller(FakePoller):
    """Tells the events of a list, one after the other, then ends the loop."""

    readable, writable, gone = 1, 2, 4

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Callable[[], Events]] = []
        self.at_end: Any = None

    def poll(self, timeout_s: float) -> Events:
        if not self.script:
            self.at_end()
            return []
        return self.script.pop(0)()


class NotedStream(FakeStream):
    """Notes how much it sends in a list that streams share."""

    def __init__(self, name: str, sends: list[tuple[str, int]]) -> None:
        super().__init__()
        self._name = name
        self._sends = sends

    def send(self, data: Buffer, /) -> int:
        self._sends.append((self._name, len(data)))
        return super().send(data)

    send_more = send


class Loop:
    """A reactor with a reader of large replies and a client with small requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.poller = ScriptedPoller()
        monkeypatch.setattr(reactor_module, "make_poller", lambda: self.poller)
        limits = ConnectionLimits(10, 10, {}, -1)
        node = cast(Node, TimelessNode())
        self.reactor = Reactor(node, [], limits, RequestBuffers(10**8), 10**6)
        self.poller.at_end = self.reactor._end
        self.sends: list[tuple[str, int]] = []
        self.readers = [self._accepted(name) for name in ("first", "second")]
        self.quick_stream, self.quick = self._accepted("quick")
        for _, reader in self.readers:
            file = MemoryFiles().open("/records", create=True)
            file.pwritev([bytes(PIECES * SEND_BYTES)], 0)
            reader.connection.out.append(FileSlice(file, 0, PIECES * SEND_BYTES))
            reader.writing = True
            reader.interest = WRITE

    def _accepted(self, name: str) -> tuple[FakeStream, Channel]:
        stream = NotedStream(name, self.sends)
        channel = self.reactor.engine.accept(stream, "host", "PLAINTEXT")
        assert channel is not None
        return stream, channel

    def writable(self) -> Events:
        return [(reader.fileno, self.poller.writable) for _, reader in self.readers]

    def writable_and_a_request(self) -> Events:
        self.quick_stream.inbox += framed(REQUEST)
        return [*self.writable(), (self.quick.fileno, self.poller.readable)]

    def run(self, *script: Callable[[], Events]) -> list[tuple[str, int]]:
        self.poller.script = list(script)
        self.reactor.run()
        return self.sends


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def test_a_small_request_goes_before_each_piece_of_large_replies(loop: Loop) -> None:
    loop.poller.events = True
    sends = loop.run(*[loop.writable_and_a_request] * 4)
    answer = ("quick", len(framed(REQUEST)))
    piece = ("first", SEND_BYTES)
    assert sends[:7] == [answer, piece, answer, piece, answer, piece, answer]


def test_readers_take_turns_while_nobody_else_wants_anything(loop: Loop) -> None:
    loop.poller.events = True  # each of them
    sends = loop.run(*[loop.writable] * 2 * PIECES)
    assert sends == [("first", SEND_BYTES), ("second", SEND_BYTES)] * PIECES


def test_the_only_reader_gets_everything_at_once(loop: Loop) -> None:
    sends = loop.run(lambda: loop.writable()[:1])
    assert sends == [("first", SEND_BYTES)] * PIECES
