from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from ottla.client.consumer.consumer import Consumer, start_offsets
from ottla.client.errors import ClientError, ProtocolViolation, Refused
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.records.record import build_batch
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.scripted_broker import Connect, FakeBroker

POLL_MS = 3_000

Jumps: TypeAlias = list[tuple[int, int, int]]
Consume: TypeAlias = Callable[..., Consumer]


class Partitions:
    """Answers fetches one record at a time, and offsets by timestamp."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.starts = dict.fromkeys(ends, 0)
        self.ends = ends
        self.error: Callable[[int], ErrorCode] = lambda partition: ErrorCode.NONE

    def fetch(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        found = [self._read(asked) for asked in topic.partitions]
        answer = FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=found
        )
        return FetchResponse(responses=[answer])

    def _read(self, asked: FetchPartition) -> PartitionData:
        partition, offset = asked.partition, asked.fetch_offset
        code = self.error(partition)
        records = b""
        if code == ErrorCode.NONE and not self.starts[partition] <= offset <= self.ends[partition]:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif code == ErrorCode.NONE and offset < self.ends[partition]:
            value = b"%d:%d" % (partition, offset)
            records = bytes(build_batch([(None, value, 0, [])], base_offset=offset))
        return PartitionData(partition_index=partition, error_code=code, records=records)

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        found = [
            ListOffsetsPartitionResponse(
                partition_index=asked.partition_index,
                offset=self._offset(asked.partition_index, asked.timestamp),
            )
            for asked in topic.partitions
        ]
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=topic.name, partitions=found)]
        )

    def _offset(self, partition: int, timestamp: int) -> int:
        if timestamp == -2:
            return self.starts[partition]
        if timestamp == -1:
            return self.ends[partition]
        return timestamp if timestamp < self.ends[partition] else -1


@pytest.fixture
def partitions() -> Partitions:
    return Partitions({0: 3, 1: 2})


@pytest.fixture
def broker(fake_broker: FakeBroker, partitions: Partitions) -> FakeBroker:
    fake_broker.handlers[ApiKey.FETCH] = partitions.fetch
    fake_broker.handlers[ApiKey.LIST_OFFSETS] = partitions.list_offsets
    fake_broker.add_topic("events", 2)
    return fake_broker


@pytest.fixture
def jumps() -> Jumps:
    return []


@pytest.fixture
def consume(broker: FakeBroker, connect: Connect, jumps: Jumps) -> Iterator[Consume]:
    consumers: list[Consumer] = []

    def start(positions: dict[int, int], topic: str = "events") -> Consumer:
        client = connect(broker.address, timeout_ms=2_000)
        consumers.append(Consumer(client, topic, positions, lambda *jump: jumps.append(jump)))
        return consumers[-1]

    yield start
    for consumer in consumers:
        consumer.close()


def read(consumer: Consumer, count: int) -> dict[int, list[bytes | None]]:
    """Return the first `count` values by partition. Fail if they do not arrive."""
    values: dict[int, list[bytes | None]] = {}
    for _ in range(50):
        for fetched in consumer.poll(POLL_MS):
            values.setdefault(fetched.partition, []).extend(r.value for r in fetched.records)
        if sum(map(len, values.values())) >= count:
            return values
    raise AssertionError(f"only {values} arrived")


def test_every_partition_is_read_in_order(consume: Consume) -> None:
    consumer = consume({0: 0, 1: 1})
    assert read(consumer, 4) == {0: [b"0:0", b"0:1", b"0:2"], 1: [b"1:1"]}
    assert consumer.positions == {0: 3, 1: 2}


def test_a_topic_without_an_id_is_named(broker: FakeBroker, consume: Consume) -> None:
    broker.add_topic("old", 1, topic_id=ZERO_UUID)
    consumer = consume({0: 0}, "old")
    assert read(consumer, 3) == {0: [b"0:0", b"0:1", b"0:2"]}
    assert broker.versions_asked()["FetchRequest"] == 12


def test_a_leader_that_moved_is_looked_up_again(
    broker: FakeBroker, consume: Consume, partitions: Partitions
) -> None:
    answers = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER])
    partitions.error = lambda partition: next(answers, ErrorCode.NONE)
    assert read(consume({0: 0}), 3) == {0: [b"0:0", b"0:1", b"0:2"]}


def test_a_connection_that_breaks_is_made_again(
    broker: FakeBroker, consume: Consume, partitions: Partitions
) -> None:
    failures = iter([ConnectionError()])

    def hang_up_once(request: FetchRequest) -> FetchResponse:
        for error in failures:
            raise error
        return partitions.fetch(request)

    broker.handlers[ApiKey.FETCH] = hang_up_once
    assert read(consume({0: 0}), 3) == {0: [b"0:0", b"0:1", b"0:2"]}


@pytest.mark.parametrize(("position", "nearest"), [(0, 1), (50, 3)])
def test_an_offset_that_is_gone(
    consume: Consume, jumps: Jumps, partitions: Partitions, position: int, nearest: int
) -> None:
    partitions.starts[0] = 1
    consumer = consume({0: position})
    consumer.poll(POLL_MS)
    assert jumps == [(0, position, nearest)]
    assert consumer.positions == {0: nearest}


def test_an_error_that_stays(consume: Consume, partitions: Partitions) -> None:
    partitions.error = lambda partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Refused, match="events-0: TOPIC_AUTHORIZATION_FAILED"):
        consume({0: 0}).poll(POLL_MS)


def test_an_answer_nobody_asked_for(broker: FakeBroker, consume: Consume) -> None:
    stray = FetchableTopicResponse(
        topic_id=b"x" * 16, partitions=[PartitionData(partition_index=9)]
    )
    broker.handlers[ApiKey.FETCH] = lambda _: FetchResponse(responses=[stray])
    with pytest.raises(ProtocolViolation, match="partition 9"):
        consume({0: 0}).poll(POLL_MS)


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(-2, {0: 0, 1: 0}), (-1, {0: 3, 1: 2}), (2, {0: 2, 1: 2})]
)
def test_where_to_start(
    broker: FakeBroker, connect: Connect, timestamp: int, expected: dict[int, int]
) -> None:
    client = connect(broker.address)
    deadline = client.deadline("the test")
    assert start_offsets(client, "events", [0, 1], timestamp, deadline) == expected


def test_a_topic_there_is_not(broker: FakeBroker, connect: Connect) -> None:
    client = connect(broker.address)
    with pytest.raises(ClientError, match="there is no topic nope"):
        start_offsets(client, "nope", [0], -1, client.deadline("the test"))
