"""Requests to other brokers over real sockets: answers, time-outs, losses, host names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from ottla.ports import Peer, Response
from ottla.records.record import build_batch
from ottla.server.broker_process import Broker
from ottla.server.clock_and_random import SystemClock
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PATIENCE_S = 10.0
Result = Message | OSError


class Serving(Broker):
    """A broker that serves in a thread, whose port to other brokers a test can use."""

    def __init__(self, directory: Path) -> None:
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
        super().__init__(properties, memory=True, report=lambda message: None)
        self.open()
        self.port = int(self.bootstrap_servers.rpartition(":")[2])
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()

    def call(self, action: Callable[[], None]) -> None:
        assert self._reactor is not None
        self._reactor.call(action)

    def connect(self, host: str, port: int) -> Peer:
        assert self._node is not None
        return self._node.ports.network.connect(host, port, "test")

    def end(self) -> None:
        self.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    broker = Serving(tmp_path)
    yield broker
    broker.end()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Serving]:
    broker = Serving(tmp_path)
    yield broker
    broker.end()


def ask(
    broker: Serving,
    peer: Peer,
    requests: list[tuple[Message, int, type[Message]]],
    timeout_ms: float = 5000,
) -> list[Result]:
    """Send requests in one go; return what came back, in the order it came."""
    results: SimpleQueue[Result] = SimpleQueue()

    def send(request: Message, version: int, answer: type[Message]) -> None:
        def done(result: Response | OSError) -> None:
            if isinstance(result, OSError):
                results.put(result)
            else:
                buffer, _, start, end = result
                results.put(decoder(answer, version)(bytes(buffer[start:end]), 0, end - start)[0])

        body = encoder(type(request), version)(request)
        peer.send(request.API_KEY, version, body, timeout_ms, done)

    def send_all() -> None:
        for request, version, answer in requests:
            send(request, version, answer)

    broker.call(send_all)
    return [results.get(timeout=PATIENCE_S) for _ in requests]


API_VERSIONS = (
    ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    3,
    ApiVersionsResponse,
)
METADATA = (
    MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
    9,
    MetadataResponse,
)


def produce(value: bytes) -> tuple[Message, int, type[Message]]:
    batch = bytes(build_batch([(None, value, SystemClock().wall_ms(), ())]))
    data = [PartitionProduceData(index=0, records=batch)]
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=-1, timeout=1000, topic_data=[topic]), 9, ProduceResponse


def fetch(max_bytes: int) -> tuple[Message, int, type[Message]]:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    topic = FetchTopic(topic="t", partitions=[partition])
    request = FetchRequest(max_wait=0, max_bytes=max_bytes, session_epoch=-1, topics=[topic])
    return request, 12, FetchResponse


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_pipeline_of_requests_is_answered_in_order(
    serving: Serving, other: Serving, host: str
) -> None:
    peer = serving.connect(host, other.port)
    for _ in range(3):  # localhost may mean an address where nobody listens first
        results = ask(serving, peer, [API_VERSIONS, METADATA, produce(b"1")])
        if not isinstance(results[0], OSError):
            break
    versions, metadata, produced = results
    assert isinstance(versions, ApiVersionsResponse)
    assert ApiKey.FETCH in {api.api_key for api in versions.api_keys}
    assert isinstance(metadata, MetadataResponse)
    assert [topic.name for topic in metadata.topics] == ["t"]
    assert isinstance(produced, ProduceResponse)
    assert produced.responses[0].partition_responses[0].error_code == 0


def test_large_responses_come_whole(serving: Serving, other: Serving) -> None:
    peer = serving.connect("127.0.0.1", other.port)
    values = [bytes([number]) * 700_000 for number in range(3)]
    assert len(ask(serving, peer, [METADATA, *map(produce, values)])) == 4
    first, second = ask(serving, peer, [fetch(10_000_000), fetch(10_000_000)])
    assert isinstance(first, FetchResponse)
    assert isinstance(second, FetchResponse)
    records = first.responses[0].partitions[0].records
    assert records is not None
    assert len(records) > 2_100_000
    assert second.responses[0].partitions[0].records == records


def test_a_port_where_nobody_listens_is_an_error(serving: Serving) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    peer = serving.connect("127.0.0.1", port)
    for _ in range(3):
        (result,) = ask(serving, peer, [API_VERSIONS])
        assert isinstance(result, ConnectionError)


def test_a_host_that_is_unknown_is_an_error(serving: Serving) -> None:
    peer = serving.connect("no-such-host.invalid", 9092)
    (result,) = ask(serving, peer, [API_VERSIONS])
    assert isinstance(result, OSError)


@contextmanager
def silent_server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        yield server


def test_a_request_that_times_out_closes_the_connection(serving: Serving) -> None:
    with silent_server() as server:
        peer = serving.connect("127.0.0.1", server.getsockname()[1])
        first, second = ask(serving, peer, [API_VERSIONS, METADATA], timeout_ms=50)
        assert {type(first), type(second)} <= {TimeoutError, ConnectionResetError}
        assert TimeoutError in {type(first), type(second)}
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(PATIENCE_S)
            while accepted.recv(1000):
                pass


def test_a_lost_connection_is_made_again_with_the_next_request(serving: Serving) -> None:
    with silent_server() as server:
        peer = serving.connect("127.0.0.1", server.getsockname()[1])

        def hang_up() -> None:
            server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        (result,) = ask(serving, peer, [API_VERSIONS])
        assert isinstance(result, ConnectionResetError)

        def answer() -> None:
            body = encoder(ApiVersionsResponse, 3)(ApiVersionsResponse(throttle_time=7))
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall((4 + len(body)).to_bytes(4) + (2).to_bytes(4) + body)

        threading.Thread(target=answer, daemon=True).start()
        (result,) = ask(serving, peer, [API_VERSIONS])
        assert isinstance(result, ApiVersionsResponse)
        assert result.throttle_time == 7


def test_a_response_to_another_request_closes_the_connection(serving: Serving) -> None:
    with silent_server() as server:
        peer = serving.connect("127.0.0.1", server.getsockname()[1])

        def answer() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall(bytes.fromhex("0000000600000063ffff"))
                assert accepted.recv(1000) == b""

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        (result,) = ask(serving, peer, [API_VERSIONS])
        assert isinstance(result, ConnectionResetError)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_closing_a_peer_fails_what_is_in_flight(serving: Serving) -> None:
    with silent_server() as server:
        peer = serving.connect("127.0.0.1", server.getsockname()[1])
        results: SimpleQueue[Response | OSError] = SimpleQueue()

        def send() -> None:
            peer.send(ApiKey.API_VERSIONS, 0, b"", 5000, results.put)

        serving.call(send)
        accepted, _ = server.accept()
        serving.call(peer.close)
        assert isinstance(results.get(timeout=PATIENCE_S), ConnectionAbortedError)
        with accepted:
            accepted.settimeout(PATIENCE_S)
            while accepted.recv(1000):
                pass
