from __future__ import annotations

import socket
from collections.abc import Callable
from struct import Struct

import pytest

from ottla.client.address import Address
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import (
    ClientError,
    ConnectionLost,
    ProtocolViolation,
    TimedOut,
    Unreachable,
    Unsendable,
    UnsupportedByBroker,
)
from ottla.wire.api_table import ApiKey
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.scripted_broker import FakeBroker, StartBroker

SIZE = Struct(">i")


def connect(address: Address, timeout_ms: float = 3_000) -> Connection:
    return Connection(address, "test", Deadline(timeout_ms, "the test"))


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolViolation, "does not use Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", ProtocolViolation, "uses TLS"),
        (SIZE.pack(-5), ProtocolViolation, "does not use Kafka's protocol"),
        (SIZE.pack(2**31 - 1), ProtocolViolation, "does not use Kafka's protocol"),
        (SIZE.pack(2) + b"xx", ProtocolViolation, "does not use Kafka's protocol"),
        (SIZE.pack(4) + SIZE.pack(99), ProtocolViolation, "answered request 99 instead of 1"),
        (SIZE.pack(4) + SIZE.pack(1), ProtocolViolation, "cannot be decoded"),
        (SIZE.pack(9) + SIZE.pack(1) + b"\0\0\xff\xff\xff", ProtocolViolation, "be decoded"),
        (SIZE.pack(100) + SIZE.pack(1), Unreachable, "the broker closed it.*TLS or SASL"),
        (b"", Unreachable, "the broker closed it.*TLS or SASL"),
    ],
)
def test_a_port_that_is_no_broker(
    serve_once: Callable[[bytes], Address], answer: bytes, error: type[ClientError], words: str
) -> None:
    with pytest.raises(error, match=words):
        connect(serve_once(answer))


def test_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname()[:2])
    with pytest.raises(Unreachable, match=f"{address}: Connection refused"):
        connect(address)


def test_a_name_nobody_has() -> None:
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:9092"):
        connect(Address("no-such-host.invalid", 9092))


def test_a_broker_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname()[:2])
        with pytest.raises(TimedOut, match=f"{address} did not answer: the test took longer"):
            connect(address, timeout_ms=50)


@pytest.mark.parametrize("api_versions", [(0, 0), (0, 2), (0, 3), (0, 4)])
def test_negotiation_with_old_and_new_brokers(
    start_broker: StartBroker, api_versions: tuple[int, int]
) -> None:
    broker = start_broker(
        {ApiKey.API_VERSIONS: api_versions, ApiKey.METADATA: (2, 9), ApiKey.FETCH: (50, 60)}
    )
    connection = connect(broker.address)
    try:
        assert connection.version_of(MetadataRequest) == 9
        assert connection.version_of(MetadataRequest, at_most=5) == 5
        assert not connection.supports(FetchRequest)
        with pytest.raises(UnsupportedByBroker, match="does not support a version of FETCH"):
            connection.version_of(FetchRequest)
    finally:
        connection.close()


def test_pipelined_requests_are_answered_in_order(fake_broker: FakeBroker) -> None:
    fake_broker.add_topic("a", 1)
    fake_broker.add_topic("b", 2)
    connection = connect(fake_broker.address)
    deadline = Deadline(3_000, "the test")
    try:
        connection.send(MetadataRequest(topics=None), deadline)
        connection.send(MetadataRequest(topics=[]), deadline)
        assert connection.pending == 2
        first = connection.receive(MetadataResponse, deadline)
        second = connection.receive(MetadataResponse, deadline)
    finally:
        connection.close()
    assert [topic.name for topic in first.topics] == ["a", "b"]
    assert second.topics == []
    assert connection.pending == 0


@pytest.mark.parametrize(
    "request_",
    [
        MetadataRequest(topics=[MetadataRequestTopic(name="\udcff")]),
        ProduceRequest(acks=2**40),
    ],
)
def test_a_value_that_no_request_can_have(fake_broker: FakeBroker, request_: Message) -> None:
    connection = connect(fake_broker.address)
    deadline = Deadline(3_000, "the test")
    try:
        with pytest.raises(Unsendable, match=r"a value cannot be sent: .*Request v"):
            connection.send(request_, deadline)
        connection.send(MetadataRequest(topics=None), deadline)
        assert connection.receive(MetadataResponse, deadline).topics == []
    finally:
        connection.close()


@pytest.mark.parametrize("size", [10, 64 * 1024, 8_000_000])
def test_requests_of_any_size_arrive_whole(fake_broker: FakeBroker, size: int) -> None:
    records = bytes(range(256)) * (size // 256) + b"end"
    fake_broker.handlers[ApiKey.PRODUCE] = lambda _: ProduceResponse()
    connection = connect(fake_broker.address)
    deadline = Deadline(10_000, "the test")
    partition = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    try:
        for _ in range(2):
            connection.send(ProduceRequest(acks=1, topic_data=[topic]), deadline, at_most=12)
            connection.receive(ProduceResponse, deadline)
    finally:
        connection.close()
    for request in fake_broker.asked(ProduceRequest):
        assert bytes(request.topic_data[0].partition_data[0].records or b"") == records


def test_a_request_of_many_parts_arrives_whole(fake_broker: FakeBroker) -> None:
    fake_broker.handlers[ApiKey.PRODUCE] = lambda _: ProduceResponse()
    connection = connect(fake_broker.address)
    deadline = Deadline(10_000, "the test")
    batches = [bytearray(b"%06d" % number * 100) for number in range(3_000)]
    partitions = [
        PartitionProduceData(index=index, records=memoryview(batch))  # type: ignore[arg-type]
        for index, batch in enumerate(batches)
    ]
    topic = TopicProduceData(name="t", partition_data=partitions)
    try:
        connection.send(ProduceRequest(acks=1, topic_data=[topic]), deadline, at_most=12)
        connection.receive(ProduceResponse, deadline)
    finally:
        connection.close()
    (request,) = fake_broker.asked(ProduceRequest)
    found = request.topic_data[0].partition_data
    assert [bytes(each.records or b"") for each in found] == batches


def test_a_connection_that_breaks(fake_broker: FakeBroker) -> None:
    def hang_up(request: object) -> None:
        raise ConnectionError

    fake_broker.handlers[ApiKey.METADATA] = hang_up
    connection = connect(fake_broker.address)
    deadline = Deadline(3_000, "the test")
    try:
        connection.send(MetadataRequest(topics=[]), deadline)
        with pytest.raises(ConnectionLost, match="the broker closed it"):
            connection.receive(MetadataResponse, deadline)
    finally:
        connection.close()
