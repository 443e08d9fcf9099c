"""ListOffsets by timestamp: batches that are large or compressed are searched by a helper."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.controller.topics import NewTopic
from ottla.log.record_search import STEPS_OF_REQUEST
from ottla.model.errors import ErrorCode
from ottla.records.record import build_batch
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.support.decisions import create_topics
from tests.support.helper_tasks import Helpers
from tests.support.log import append_all

NOW = 1_700_000_000_000
VERSION = 7
MAX_TIMESTAMP = -3
ZSTD = 4
MANY = 2 * STEPS_OF_REQUEST


class Broker:
    """A node with one topic, and what it answers to ListOffsets."""

    def __init__(self, node: Node, helpers: Helpers, partitions: int = 3) -> None:
        self.node = node
        self.helpers = helpers
        self.connection = Connection("127.0.0.1", "PLAINTEXT")
        topic = NewTopic("t", num_partitions=partitions)
        node.controller.write(
            create_topics(node.image, node.config, node.ports.random, [topic]).records
        )

    def append(self, partition: int, count: int, codec: int = 0) -> None:
        records = [(None, b"v", NOW + number, ()) for number in range(count)]
        topic = self.node.topics.named("t")
        assert topic is not None
        append_all(topic.partitions[partition].online_log(), build_batch(records, codec=codec))

    def ask(self, *asked: tuple[int, int]) -> None:
        """Ask for the offsets of partitions and timestamps."""
        partitions = [
            ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            for index, timestamp in asked
        ]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
        body = encoder(ListOffsetsRequest, VERSION)(request)
        frame = bytearray(pack(">hhih", 2, VERSION, 7, 0) + b"\0" + body)
        self.node.advance()
        self.node.handle(self.connection, frame, memoryview(frame), 0, len(frame))
        self.node.settle()

    def answers(self) -> list[ListOffsetsPartitionResponse]:
        found = []
        for frame in self.connection.out:
            assert isinstance(frame, bytes)
            response, _ = decoder(ListOffsetsResponse, VERSION)(frame, 9, len(frame))
            found += [partition for topic in response.topics for partition in topic.partitions]
        self.connection.out.clear()
        return found

    def offsets(self) -> list[tuple[int, int]]:
        return [(answer.error_code, answer.offset) for answer in self.answers()]


@pytest.fixture
def broker(start_node: Callable[..., Node]) -> Broker:
    helpers = Helpers()
    return Broker(start_node(helpers=helpers), helpers)


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_small_batches_are_searched_at_once(broker: Broker, codec: int) -> None:
    broker.append(0, 100, codec)
    broker.ask((0, NOW + 42), (0, MAX_TIMESTAMP))
    assert broker.offsets() == [(ErrorCode.INVALID_REQUEST, -1)] * 2  # named twice
    broker.ask((0, NOW + 42))
    broker.ask((0, MAX_TIMESTAMP))
    broker.ask((0, NOW + 100))
    assert broker.offsets() == [(0, 42), (0, 99), (0, -1)]
    assert not broker.helpers.waiting


def test_the_search_ends_where_the_record_is(broker: Broker) -> None:
    broker.append(0, MANY)
    for _ in range(5):
        broker.ask((0, NOW + 42))
    assert broker.offsets() == [(0, 42)] * 5
    assert not broker.helpers.waiting


@pytest.mark.parametrize("codec", [0, ZSTD])
def test_large_batches_are_searched_by_a_helper(broker: Broker, codec: int) -> None:
    for partition in range(3):
        broker.append(partition, MANY * (1 + 3 * bool(codec)), codec)
    broker.ask((0, NOW + MANY - 5), (1, NOW + MANY - 1), (2, MAX_TIMESTAMP))
    for _ in range(3):
        assert broker.answers() == []
        assert len(broker.helpers.waiting) == 1  # one batch at a time
        broker.helpers.finish()
    last = MANY * (1 + 3 * bool(codec)) - 1
    assert broker.offsets() == [(0, MANY - 5), (0, MANY - 1), (0, last)]


def test_many_lookups_share_what_may_be_read_at_once(broker: Broker) -> None:
    for partition in range(3):
        broker.append(partition, STEPS_OF_REQUEST - 10)
    late = NOW + STEPS_OF_REQUEST - 11
    broker.ask((0, late), (1, late), (2, late))
    assert len(broker.helpers.waiting) == 1
    broker.helpers.finish()
    broker.helpers.finish()
    assert broker.offsets() == [(0, STEPS_OF_REQUEST - 11)] * 3


def test_a_helper_that_fails(broker: Broker) -> None:
    broker.append(0, MANY)
    broker.append(1, 5)
    broker.ask((0, NOW + MANY - 1), (1, NOW + 3))
    broker.helpers.fail()
    broker.helpers.finish()
    broker.helpers.is_full = True
    broker.ask((0, NOW + MANY - 1))
    failed = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert broker.offsets() == [failed, (0, 3), failed]


def test_nobody_waits_any_more(broker: Broker) -> None:
    broker.append(0, MANY)
    broker.append(1, MANY)
    broker.ask((0, NOW + MANY - 1), (1, NOW + MANY - 1))
    broker.connection.closed = True
    broker.helpers.finish()
    assert not broker.helpers.waiting
