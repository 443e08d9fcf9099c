"""A node in memory with a clock that tests move, and clients that send it any request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.connection import Connection
from ottla.broker.handlers import Served
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import PartitionRecord
from ottla.model.errors import ApiError
from ottla.ports import Files, HelperProcesses, ObjectStore
from ottla.records.record import build_batch
from ottla.replication.partition import Partition
from ottla.testing.fakes import START_MS, FakeClock, FakeRandom, fake_ports
from ottla.wire.api_table import ApiKey
from ottla.wire.apis import response_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.message import Field, Message
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

BROKER_ID = 1
CLIENT_ID = "the-client"


class Broker:
    """A node with its clock."""

    earlier_files: Files | None = None
    """The files of an earlier broker; None for new ones."""

    object_store: ObjectStore | None = None
    """The store of the remote tier; None for a broker without one."""

    helpers: HelperProcesses | None = None
    """The helper processes; None for a broker without them."""

    def __init__(self, clock: FakeClock | None = None, **settings: str) -> None:
        properties = {name.replace("_", "."): text for name, text in settings.items()}
        config = BrokerConfig({"log.dirs": "/data", "node.id": str(BROKER_ID), **properties})
        self.clock = FakeClock() if clock is None else clock
        numbers = count(1)
        self.reports: list[str] = []
        endpoints = [
            each._replace(host="localhost") for each in config.network.advertised_listeners
        ]
        random = FakeRandom(lambda limit: next(numbers) % limit)
        ports = fake_ports(
            clock=self.clock,
            random=random,
            report=self.reports.append,
            files=self.earlier_files,
            object_store=self.object_store,
            helpers=self.helpers,
        )
        self.node = Node(config, endpoints, ports)
        self.node.start()

    def topic(self, name: str = "t") -> Partition:
        """Create a topic; return its first partition."""
        auto_create(self.node, [name], lambda errors: None)
        self.node.settle()
        return self.node.topics.partition_named(name, 0)

    def topic_with(self, name: str = "t", **fields: Any) -> Partition:
        """Create a topic whose first partition has the role that its image gives it."""
        partition = self.topic(name)
        partition.take_role(partition_image(**fields), BROKER_ID)
        return partition

    def write_metadata(self, *records: Message) -> None:
        """Write records to the metadata log; the node follows them."""
        self.node.controller.write(records)

    def add_partition_elsewhere(self, name: str = "t") -> int:
        """Give a topic a partition that has its only replica on broker 2; return its index."""
        topic = self.node.image.topics[name]
        index = len(topic.partitions)
        self.node.controller.write(
            [
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    replicas=[2],
                    isr=[2],
                    leader=2,
                    leader_epoch=1,
                    partition_epoch=1,
                )
            ]
        )
        return index

    def connect(self) -> Client:
        return Client(self)

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, in one wake-up."""
        self.clock.now_ms += duration_ms
        self.node.advance()
        self.node.settle()


def partition_image(
    *,
    leader: int = BROKER_ID,
    isr: tuple[int, ...] = (1, 2),
    replicas: tuple[int, ...] = (1, 2),
    leader_epoch: int = 1,
    index: int = 0,
) -> PartitionImage:
    """Return the image of a partition with replicas on brokers 1 and 2."""
    return PartitionImage(index, replicas, isr, leader, leader_epoch, leader_epoch)


class Client:
    """A connection to a node. Correlation ids count up, so that replies can be told apart."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.connection = Connection("127.0.0.1", "PLAINTEXT")
        self.kept: list[bytearray] = []
        self._correlation_id = 0
        self._sent: dict[int, tuple[int, int]] = {}

    def send(self, request: Message, version: int | None = None) -> int:
        """Let the node handle a request; return its correlation id."""
        version = type(request).MAX_VERSION if version is None else version
        self._correlation_id += 1
        key, correlation_id = request.API_KEY, self._correlation_id
        frame = bytearray(
            request_header(key, version, correlation_id, CLIENT_ID)
            + encoder(type(request), version)(request)
        )
        self.kept.append(frame)
        self._sent[correlation_id] = key, version
        assert self.connection.takes_requests
        self.broker.node.handle(self.connection, frame, memoryview(frame), 0, len(frame))
        return correlation_id

    def replies(self) -> Iterator[tuple[int, Message]]:
        """Take the replies that may leave, as correlation ids and responses."""
        frames = b"".join(
            part if isinstance(part, bytes) else part.file.pread(part.length, part.position)
            for part in self.connection.out
        )
        self.connection.out.clear()
        self.connection.sent()
        start = 0
        while start < len(frames):
            stop = start + 4 + int.from_bytes(frames[start : start + 4], "big")
            correlation_id = int.from_bytes(frames[start + 4 : start + 8], "big")
            key, version = self._sent.pop(correlation_id)
            found, body = decode_response_header(key, version, frames, start + 4, stop)
            assert found == correlation_id
            response, end = decoder(response_class(key), version)(frames, body, stop)
            assert end == stop, f"{stop - end} bytes follow the response"
            yield correlation_id, response
            start = stop

    def ids(self) -> list[int]:
        """Take the replies that may leave; return their correlation ids."""
        return [correlation_id for correlation_id, _ in self.replies()]

    def ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request in a wake-up of its own; return the response, which comes at once."""
        correlation_id = self.send(request, version)
        self.broker.node.settle()
        ((found, response),) = self.replies()
        assert found == correlation_id
        return response


def produce(topic: str = "t", *, acks: int = -1, index: int = 0, timeout: int = 1000) -> Message:
    """Return a Produce request for one record. Send it in a version before 13."""
    records = bytes(build_batch([(b"k", b"v", START_MS, ())]))
    return ProduceRequest(
        acks=acks,
        timeout=timeout,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=index, records=records)]
            )
        ],
    )


# Requests and responses of any API

_VALUES = {
    "bool": False,
    "float64": 0.0,
    "uuid": bytes(15) + b"\x07",
    "string": "t",
    "bytes": b"",
}
_SPECIAL: dict[str, object] = {
    "acks": 1,
    "transactional_id": None,
    "records": bytes(build_batch([(b"k", b"v", START_MS, ())])),
    "replica_id": -1,
    "replica_state": None,
    "max_wait": 10,
    "max_wait_ms": 10,
    "cursor": None,
}


def filled(message: type[Message], version: int) -> Any:
    """Return a message of this version that has one element in every array."""
    made = message()
    for field in message.FIELDS:
        if field.exists(version):
            value = _value(field, version)
            if value is not None or field.is_nullable(version):
                setattr(made, field.name, value)
    return made


def _value(field: Field, version: int) -> object:
    if field.name in _SPECIAL:
        return _SPECIAL[field.name]
    if field.type == "array":
        of = field.of
        return [_VALUES.get(of, 0) if isinstance(of, str) else filled(of, version)]  # type: ignore[arg-type]
    if field.type == "struct":
        return filled(field.of, version)  # type: ignore[arg-type]
    return _VALUES.get(field.type, 0)


def error_codes(message: Message, version: int) -> Iterator[int]:
    """Yield every error code that a response of this version carries."""
    for field in message.FIELDS:
        if not field.exists(version):
            continue
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Message):
                yield from error_codes(part, version)


def each_version(served: Mapping[int, Served], *, without: int | None = None) -> list[object]:
    """Return a test parameter (API key, version) for each version of all APIs but one."""
    return [
        pytest.param(key, version, id=f"{ApiKey(key).name}-{version}")
        for key, versions in served.items()
        if key != without
        for version in range(versions.oldest, versions.newest + 1)
    ]


def has_throttle_time(key: int, version: int) -> bool:
    """Return True if the response of this version has a throttle time."""
    fields = response_class(key).FIELDS
    return any(field.name == "throttle_time" and field.exists(version) for field in fields)


class Denying:
    """An authorizer that refuses every request with the same error."""

    def __init__(self, error: ApiError) -> None:
        self.error = error
        self.asked: list[str] = []

    def check(self, context: Any) -> None:
        self.asked.append(context.api.name)
        raise self.error

    def allows(self, context: Any, operation: int, resource_type: int, name: str) -> bool:
        return False


class DenyingOne:
    """An authorizer that allows everything but one operation on one resource."""

    def __init__(self, operation: int, resource_type: int, name: str) -> None:
        self.denied = operation, resource_type, name

    def check(self, context: Any) -> None:
        pass

    def allows(self, context: Any, operation: int, resource_type: int, name: str) -> bool:
        return (operation, resource_type, name) != self.denied


class Throttling:
    """Quotas that hold every connection back for the same time."""

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self.seen: list[tuple[str, str | None]] = []

    def throttle_ms(self, context: Any) -> int:
        self.seen.append((context.api.name, context.client_id))
        return self.time_ms
