"""Replies leave after their commit, however a client pipelines, and say what became of it."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOSPC

import pytest

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Endpoint
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ErrorCode
from ottla.network.buffers import RequestBuffers
from ottla.network.limits import ConnectionLimits
from ottla.ports import Clock, Files
from ottla.records.record import build_batch
from ottla.server.clock_and_random import SystemClock, SystemRandom
from ottla.server.listener import Listener
from ottla.server.poller import VARIABLE
from ottla.server.reactor import Reactor
from ottla.testing.fakes import fake_ports
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support import fake_kqueue

PRODUCE_VERSION = 9
FETCH_VERSION = 12
KQUEUE_NAMES = [name for name in vars(fake_kqueue) if name.startswith(("KQ_", "kqueue", "kevent"))]
NO_ROOM = OSError(ENOSPC, "no space left")


@pytest.fixture(autouse=True, params=["epoll", "poll", "kqueue"])
def poller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with each event API; kqueue is a fake."""
    monkeypatch.setenv(VARIABLE, request.param)
    for name in KQUEUE_NAMES:
        monkeypatch.setattr(select, name, getattr(fake_kqueue, name), raising=False)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


class FastClock:
    """Time that passes a hundred times as fast."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms() * 100


@pytest.fixture
def client(files: FaultyFiles) -> Iterator[socket.socket]:
    with serving(files, SystemClock(), 10**8) as address, connected(address) as sock:
        yield sock


def connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=10)


@contextmanager
def serving(files: Files, clock: Clock, most_buffered_bytes: int) -> Iterator[tuple[str, int]]:
    """Run a reactor, and yield its address."""
    listener = Listener(Endpoint("PLAINTEXT", "127.0.0.1", 0), -1, -1)
    ports = fake_ports(files, clock, SystemRandom())
    config = BrokerConfig({"log.dirs": "/data"})
    node = Node(config, [Endpoint("PLAINTEXT", "127.0.0.1", listener.port)], ports)
    node.start()
    auto_create(node, ["t"], lambda errors: None)
    node.settle()
    limits = ConnectionLimits(100, 100, {}, 600_000)
    reactor = Reactor(node, [listener], limits, RequestBuffers(most_buffered_bytes), 10**8)
    reactor.open()
    thread = threading.Thread(target=reactor.run, daemon=True)
    thread.start()
    yield "127.0.0.1", listener.port
    reactor.stop()
    thread.join(10)
    assert not thread.is_alive()
    reactor.close()


def frame(message: Message, version: int, correlation_id: int) -> bytes:
    header = request_header(message.API_KEY, version, correlation_id, "test")
    body = header + encoder(type(message), version)(message)
    return len(body).to_bytes(4) + body


def produce(correlation_id: int, value_bytes: int = 1) -> bytes:
    batch = bytes(build_batch([(None, bytes(value_bytes), SystemClock().wall_ms(), ())]))
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(
        acks=1, timeout=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    return frame(request, PRODUCE_VERSION, correlation_id)


def long_poll(correlation_id: int, offset: int, max_wait_ms: int = 5000) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait=max_wait_ms,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    return frame(request, FETCH_VERSION, correlation_id)


def read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


def reply(sock: socket.socket, message: type[Message], version: int) -> tuple[int, Message]:
    data = read(sock, int.from_bytes(read(sock, 4)))
    correlation_id, position = decode_response_header(message.API_KEY, version, data, 0, len(data))
    return correlation_id, decoder(message, version)(data, position, len(data))[0]


def produced(sock: socket.socket) -> tuple[int, int, int]:
    """Return the correlation id, error code and base offset of the next reply to a Produce."""
    correlation_id, response = reply(sock, ProduceResponse, PRODUCE_VERSION)
    result = response.responses[0].partition_responses[0]  # type: ignore[attr-defined]
    return correlation_id, result.error_code, result.base_offset


def test_replies_keep_the_order_of_pipelined_requests(client: socket.socket) -> None:
    client.sendall(produce(1) + long_poll(2, 0) + produce(3) + produce(4) + long_poll(5, 2))
    assert produced(client) == (1, 0, 0)
    assert reply(client, FetchResponse, FETCH_VERSION)[0] == 2
    assert produced(client) == (3, 0, 1)
    assert produced(client) == (4, 0, 2)
    assert reply(client, FetchResponse, FETCH_VERSION)[0] == 5


def test_a_request_behind_a_parked_one_is_not_acknowledged_before_its_commit(
    client: socket.socket, files: FaultyFiles
) -> None:
    files.fail("write", NO_ROOM, path="/data/t-*.log", after=1)
    client.sendall(produce(1) + long_poll(2, 0) + produce(3))
    assert produced(client) == (1, 0, 0)
    assert reply(client, FetchResponse, FETCH_VERSION)[0] == 2
    assert produced(client) == (3, ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(
    client: socket.socket, files: FaultyFiles
) -> None:
    files.fail("write", NO_ROOM, path="/data/t-*.log")
    client.sendall(produce(1) + produce(2))
    assert produced(client) == (1, ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert produced(client) == (2, ErrorCode.KAFKA_STORAGE_ERROR, -1)
    files.heal()
    client.sendall(produce(3))
    assert produced(client) == (3, 0, 0)


SIZES = (10, 300_000, 900_000, 900_000, 10, 5000, 1_000_000, 40_000, 260_000, 70_000, 900_000, 1)


@pytest.mark.parametrize("piece", [2_000_000, 262_144, 33_333])
def test_frames_of_all_sizes_follow_each_other(client: socket.socket, piece: int) -> None:
    sizes = SIZES * 2
    data = b"".join(produce(number, size) for number, size in enumerate(sizes))

    def send() -> None:
        for at in range(0, len(data), piece):
            client.sendall(data[at : at + piece])

    sender = threading.Thread(target=send)
    sender.start()
    for number in range(len(sizes)):
        assert produced(client) == (number, 0, number)
    sender.join(10)


def test_what_waits_for_a_large_frame_hears_of_a_small_one(client: socket.socket) -> None:
    for number, size in enumerate((900_000, 900_000, 10, 900_000, 1000)):
        request = produce(number, size)
        client.sendall(request[:3])
        client.sendall(request[3:])
        assert produced(client) == (number, 0, number)


def test_frames_that_just_fill_a_buffer_are_followed_by_larger_ones(client: socket.socket) -> None:
    around = len(produce(0, 500_000)) - 500_000
    exact = 2**19 - around
    sizes = (exact, exact, exact, 600_000) * 6
    data = b"".join(produce(number, size) for number, size in enumerate(sizes))
    assert len(data) == (18 * 2**19 + 6 * (600_000 + around))
    sender = threading.Thread(target=lambda: client.sendall(data))
    sender.start()
    for number in range(len(sizes)):
        assert produced(client) == (number, 0, number)
    sender.join(10)


def test_the_last_byte_of_a_large_frame_completes_it(client: socket.socket) -> None:
    for number in range(4):
        request = produce(number, 900_000)
        for part in (request[:300_000], request[300_000:-1], request[-1:]):
            client.sendall(part)
        assert produced(client) == (number, 0, number)


def test_a_client_that_ends_within_a_large_frame_is_let_go(client: socket.socket) -> None:
    client.sendall(produce(0, 900_000))
    assert produced(client) == (0, 0, 0)
    client.sendall(produce(1, 900_000)[:400_000])
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""


def test_who_sits_on_the_memory_that_others_wait_for_is_closed(files: FaultyFiles) -> None:
    with (
        serving(files, FastClock(), 1_500_000) as address,
        connected(address) as stalled,
        connected(address) as other,
    ):
        stalled.sendall(produce(0, 900_000))
        assert produced(stalled) == (0, 0, 0)
        stalled.sendall(produce(1, 900_000)[:800_000])
        other.sendall(produce(2, 1_000_000))
        assert produced(other) == (2, 0, 1)
        other.sendall(produce(3, 1_000_000))
        assert produced(other) == (3, 0, 2)
        assert stalled.recv(1) == b""


def test_an_impossible_length_behind_a_parked_request_is_refused(client: socket.socket) -> None:
    client.sendall(long_poll(1, 0, 100) + (2**31 - 1).to_bytes(4) + bytes(100_000))
    assert reply(client, FetchResponse, FETCH_VERSION)[0] == 1
    with suppress(ConnectionResetError):
        assert client.recv(1) == b""


class SlowClock:
    """Time that passes as if every event took a millisecond: each look at it takes one."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.looks = 0

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic_ms(self) -> float:
        self.looks += 1
        return self._clock.monotonic_ms() + self.looks


def test_connections_that_a_wake_up_does_not_come_to_are_served_by_the_next(
    files: FaultyFiles,
) -> None:
    """With this clock a wake-up is over after a few connections."""
    count, rounds = 60, 4
    with serving(files, SlowClock(), 10**8) as address, ExitStack() as stack:
        clients = [stack.enter_context(connected(address)) for _ in range(count)]
        for number in range(rounds):
            for client in clients:
                client.sendall(produce(number) + produce(number + 100))
        for number in range(rounds):
            for client in clients:
                assert produced(client)[:2] == (number, 0)
                assert produced(client)[:2] == (number + 100, 0)
        for client in clients[::2]:
            client.close()
        for client in clients[1::2]:
            client.sendall(produce(7))
            assert produced(client)[:2] == (7, 0)


def test_who_asked_first_is_answered_first_even_if_others_go_on_asking(
    files: FaultyFiles,
) -> None:
    with serving(files, SlowClock(), 10**8) as address, ExitStack() as stack:
        clients = [stack.enter_context(connected(address)) for _ in range(40)]
        stop = threading.Event()

        def ask_again_and_again(client: socket.socket) -> None:
            number = 0
            while not stop.is_set():
                client.sendall(produce(number))
                assert produced(client)[0] == number
                number += 1

        threads = [
            threading.Thread(target=ask_again_and_again, args=(client,)) for client in clients[:-1]
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(5):
                clients[-1].sendall(produce(number))
                assert produced(clients[-1])[:2] == (number, 0)
        finally:
            stop.set()
            for thread in threads:
                thread.join(10)
