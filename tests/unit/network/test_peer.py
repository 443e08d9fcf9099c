"""Requests to a peer and their responses, with streams in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.network.channel import Channel
from ottla.network.peer import MOST_IN_FLIGHT, EnginePeer
from ottla.network.peers import Peers
from ottla.network.stream import READ, WRITE, Stream
from ottla.ports import Response
from ottla.testing.fakes import FakeRandom
from ottla.wire.apis import ApiKey
from ottla.wire.header import decode_request_header
from ottla.wire.primitives import DecodeError
from tests.support.network import FakeStream, World

VERSION = 0


class FakeConnector:
    """Opens a stream when it is told to."""

    def __init__(self) -> None:
        self.attempts: list[Callable[[Stream | OSError], None]] = []

    def connect(self, host: str, port: int, done: Callable[[Stream | OSError], None]) -> None:
        self.attempts.append(done)


class PeerWorld(World):
    """A peer, whose results are collected as (number of the request, body or error)."""

    def __init__(self) -> None:
        super().__init__()
        self.connector = FakeConnector()
        peers = Peers(lambda: self.connector, FakeRandom(lambda limit: limit // 2), 1_000_000)
        peers.attach(self.engine)
        self.peer: EnginePeer = peers.connect("other", 9092, "me")
        self.results: list[tuple[int, bytes | type[OSError]]] = []

    def send(self, number: int, timeout_ms: float = 1000, body: bytes = b"ask") -> None:
        def done(result: Response | OSError) -> None:
            if isinstance(result, OSError):
                self.results.append((number, type(result)))
            else:
                _, view, start, end = result
                self.results.append((number, bytes(view[start:end])))

        self.peer.send(ApiKey.API_VERSIONS, VERSION, body, timeout_ms, done)

    def open(self) -> tuple[FakeStream, Channel]:
        """Let the connection that was begun last succeed."""
        stream = FakeStream()
        self.connector.attempts[-1](stream)
        channel = self.engine.channels[stream.fileno()]
        self.engine.send(channel)
        return stream, channel

    def answer(
        self, stream: FakeStream, channel: Channel, correlation_id: int, body: bytes
    ) -> None:
        frame = correlation_id.to_bytes(4) + body
        self.receive(channel, stream, len(frame).to_bytes(4) + frame)


def sent_ids(stream: FakeStream) -> list[int]:
    """Return the correlation ids of the requests that were sent."""
    found, position = [], 0
    while position < len(stream.sent):
        stop = position + 4 + int.from_bytes(stream.sent[position : position + 4])
        header = decode_request_header(stream.sent, position + 4, stop)
        assert (header.api_key, header.client_id) == (ApiKey.API_VERSIONS, "me")
        found.append(header.correlation_id)
        position = stop
    return found


def test_requests_wait_for_the_connection_and_leave_in_order() -> None:
    world = PeerWorld()
    world.send(1)
    world.send(2)
    assert len(world.connector.attempts) == 1
    stream, channel = world.open()
    assert sent_ids(stream) == [1, 2]
    world.send(3)
    assert sent_ids(stream) == [1, 2], "nothing leaves before the node has settled"
    world.engine.settle()
    assert sent_ids(stream) == [1, 2, 3]
    for number in (1, 2, 3):
        world.answer(stream, channel, number, b"answer %d" % number)
    assert world.results == [(1, b"answer 1"), (2, b"answer 2"), (3, b"answer 3")]
    assert world.peer.in_flight == 0


def test_responses_are_read_while_requests_cannot_be_sent() -> None:
    world = PeerWorld()
    world.send(1)
    stream, channel = world.open()
    stream.room = 0
    world.send(2)
    world.engine.settle()
    assert world.interest(channel) == READ | WRITE
    world.answer(stream, channel, 1, b"yes")
    assert world.results == [(1, b"yes")]


def test_a_request_that_times_out_takes_the_connection_with_it() -> None:
    world = PeerWorld()
    world.send(1, timeout_ms=5000)
    world.send(2, timeout_ms=100)
    stream, _ = world.open()
    world.node.pass_ms(100)
    assert sorted(world.results) == [(1, ConnectionResetError), (2, TimeoutError)]
    assert stream.closed
    world.send(3)
    assert len(world.connector.attempts) == 2


def test_a_request_may_time_out_before_there_is_a_connection() -> None:
    world = PeerWorld()
    world.send(1, timeout_ms=100)
    world.send(2, timeout_ms=5000)
    world.node.pass_ms(100)
    assert world.results == [(1, TimeoutError)]
    stream, _ = world.open()
    assert sent_ids(stream) == [2]


def test_a_failed_attempt_fails_what_waits_and_the_next_request_tries_again_later() -> None:
    world = PeerWorld()
    delays_ms = []
    for number in range(8):
        world.send(number, timeout_ms=100_000)
        start_ms = world.node.monotonic_ms
        while len(world.connector.attempts) <= number:
            world.node.pass_ms(10)
        delays_ms.append(world.node.monotonic_ms - start_ms)
        world.connector.attempts[-1](ConnectionRefusedError("no"))
    assert world.results == [(number, ConnectionRefusedError) for number in range(8)]
    assert delays_ms == [0, 0, 50, 100, 200, 400, 800, 1000]


def test_a_response_ends_the_backoff() -> None:
    world = PeerWorld()
    world.send(1)
    world.connector.attempts[-1](ConnectionRefusedError("no"))
    world.send(2)
    stream, channel = world.open()
    world.answer(stream, channel, 2, b"yes")
    stream.eof = True
    world.engine.receive(channel)
    world.send(3)
    assert len(world.connector.attempts) == 3


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\x00\x00\x04\x00\x00\x00\x09",
        b"\x00\x00\x00\x03\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_response_to_the_oldest_request_closes_the_connection(frame: bytes) -> None:
    world = PeerWorld()
    world.send(1)
    stream, channel = world.open()
    world.receive(channel, stream, frame + bytes(10))
    assert stream.closed
    assert world.results == [(1, ConnectionResetError)]


def test_a_response_that_cannot_be_decoded_closes_the_connection() -> None:
    world = PeerWorld()

    def done(result: Response | OSError) -> None:
        raise DecodeError("not what was asked for")

    world.peer.send(ApiKey.API_VERSIONS, VERSION, b"", 1000, done)
    stream, channel = world.open()
    world.answer(stream, channel, 1, b"")
    assert stream.closed


def test_requests_in_flight_are_bounded() -> None:
    world = PeerWorld()
    for number in range(MOST_IN_FLIGHT):
        world.send(number)
    with pytest.raises(BlockingIOError):
        world.send(MOST_IN_FLIGHT)


def test_closing_within_a_response_is_fine() -> None:
    world = PeerWorld()
    results: list[Response | OSError] = []

    def done(result: Response | OSError) -> None:
        results.append(result)
        world.peer.close()

    world.peer.send(ApiKey.API_VERSIONS, VERSION, b"", 1000, done)
    world.send(2)
    stream, channel = world.open()
    first, second = ((4).to_bytes(4) + number.to_bytes(4) for number in (1, 2))
    world.receive(channel, stream, first + second)
    world.engine.settle()
    assert isinstance(results[0], Response)
    assert world.results == [(2, ConnectionAbortedError)]
    assert stream.closed


def test_a_peer_that_was_closed_drops_the_connection_that_is_made_later() -> None:
    world = PeerWorld()
    world.send(1)
    world.peer.close()
    stream = FakeStream()
    world.connector.attempts[-1](stream)
    assert stream.closed
    assert world.results == [(1, ConnectionAbortedError)]


def test_large_responses_are_handed_over_whole() -> None:
    world = PeerWorld()
    for number in range(1, 5):
        world.send(number)
    stream, channel = world.open()
    for number in range(1, 5):
        body = bytes([number]) * 700_000
        frame = number.to_bytes(4) + body
        data = len(frame).to_bytes(4) + frame
        for start in range(0, len(data), 200_000):
            world.receive(channel, stream, data[start : start + 200_000])
            while stream.inbox:
                world.engine.receive(channel)
        world.engine.settle()
        assert world.results[-1] == (number, body)
