"""Appends that begin many segments: a wake-up begins a few, and the rest waits in its order."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.topics import NewTopic
from ottla.log.log import Log
from ottla.model.errors import ErrorCode
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch
from ottla.replication.partition import Partition
from ottla.testing.fakes import START_MS, FakeClock
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.broker import Broker, Client
from tests.support.decisions import create_topics

MANY = 60
A_FEW = 6
VERSION = 12


class RollingClock(FakeClock):
    """A clock that moves by a millisecond when its monotonic time is read."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_ms = 0

    def monotonic_ms(self) -> float:
        self.passed_ms += 1
        return super().monotonic_ms() + self.passed_ms


def new_broker(partitions: int = 1, **settings: str) -> Broker:
    """Return a broker with a topic `t` whose segments have room for one batch."""
    broker = Broker(RollingClock())
    node = broker.node
    configs = {"internal.segment.bytes": "150"} | {
        name.replace("_", "."): text for name, text in settings.items()
    }
    topic = NewTopic("t", num_partitions=partitions, configs=tuple(configs.items()))
    node.controller.write(
        create_topics(node.image, node.config, node.ports.random, [topic]).records
    )
    return broker


def partitions_of(broker: Broker) -> list[Partition]:
    topic = broker.node.topics.named("t")
    assert topic is not None
    return list(topic.partitions.values())


def log_of(broker: Broker) -> Log:
    return partitions_of(broker)[0].online_log()


def request(
    number: int = 0, partitions: int = 1, *, acks: int = -1, **fields: Any
) -> ProduceRequest:
    records = bytes(build_batch([(None, b"%050d" % number, START_MS, ())], **fields))
    return ProduceRequest(
        acks=acks,
        timeout=1000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=index, records=records)
                    for index in range(partitions)
                ],
            )
        ],
    )


def segments(broker: Broker) -> int:
    return sum(len(each.online_log().segments) for each in partitions_of(broker))


def finish(broker: Broker, client: Client) -> list[Any]:
    """Run wake-ups until nothing waits; return the responses in the order of their requests."""
    found: list[Any] = []
    while broker.node.delayed_bytes:
        before = segments(broker)
        broker.node.advance()
        broker.node.settle()
        assert 0 < segments(broker) - before <= A_FEW
        found += client.replies()
    assert [correlation_id for correlation_id, _ in found] == sorted(each for each, _ in found)
    return [response for _, response in found]


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_pipelined_requests_begin_a_few_segments_in_a_wake_up(timestamp_type: str) -> None:
    broker = new_broker(message_timestamp_type=timestamp_type)
    client = broker.connect()
    broker.node.advance()
    for number in range(MANY):
        client.send(request(number, producer_id=7, producer_epoch=0, base_sequence=number), VERSION)
    broker.node.settle()
    assert segments(broker) <= A_FEW
    responses = [response for _, response in client.replies()] + finish(broker, client)
    results = [response.responses[0].partition_responses[0] for response in responses]
    assert [result.error_code for result in results] == [0] * MANY
    assert [result.base_offset for result in results] == list(range(MANY))
    assert segments(broker) == MANY
    values = [read_value(log_of(broker), offset) for offset in range(MANY)]
    assert values == [b"%050d" % number for number in range(MANY)]


def read_value(log: Log, offset: int) -> bytes:
    found = log.read(offset, 1000, offset + 1, at_least_one=True)
    assert found is not None
    return found.file.pread(found.length, found.position)[-51:-1]


def test_a_request_for_many_partitions_begins_a_few_segments_in_a_wake_up() -> None:
    broker = new_broker(MANY)
    client = broker.connect()
    client.ask(request(0, MANY), VERSION)
    broker.node.advance()
    client.send(request(1, MANY), VERSION)
    broker.node.settle()
    assert segments(broker) <= MANY + A_FEW
    (response,) = finish(broker, client)
    results = response.responses[0].partition_responses
    assert [(result.index, result.error_code) for result in results] == [
        (index, 0) for index in range(MANY)
    ]
    assert {result.base_offset for result in results} == {1}
    assert segments(broker) == 2 * MANY


def test_requests_without_acks_begin_a_few_segments_in_a_wake_up() -> None:
    broker = new_broker()
    client = broker.connect()
    broker.node.advance()
    for number in range(3 * MANY):
        client.send(request(number, acks=0), VERSION)
    broker.node.settle()
    assert segments(broker) <= A_FEW
    assert finish(broker, client) == []
    assert segments(broker) == 3 * MANY


def test_batches_of_the_broker_itself_begin_a_few_segments_in_a_wake_up() -> None:
    broker = new_broker()
    node, (partition,) = broker.node, partitions_of(broker)
    codes: list[ErrorCode] = []
    node.advance()
    for number in range(MANY):
        batch = build_batch([(b"k", b"%050d" % number, START_MS, ())])
        node.append_internal(partition, batch, codes.append)
    node.settle()
    assert segments(broker) <= A_FEW
    finish(broker, broker.connect())
    assert codes == [ErrorCode.NONE] * MANY
    assert segments(broker) == MANY


def test_markers_begin_a_few_segments_in_a_wake_up() -> None:
    broker = new_broker()
    node, (partition,) = broker.node, partitions_of(broker)
    codes: list[ErrorCode] = []
    node.advance()
    for number in range(MANY):
        marker = build_marker(
            ControlType.ABORT,
            producer_id=number,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=START_MS,
        )
        node.append_transactional(partition, marker, codes.append)
    node.settle()
    assert segments(broker) <= A_FEW
    finish(broker, broker.connect())
    assert codes == [ErrorCode.NONE] * MANY
    assert segments(broker) > MANY // 2


def test_what_waits_is_refused_when_the_broker_stops_leading() -> None:
    broker = new_broker()
    client = broker.connect()
    broker.node.advance()
    for number in range(MANY):
        client.send(request(number), VERSION)
    broker.node.settle()
    answered = len(list(client.replies()))
    leader = partitions_of(broker)[0].as_leader()
    leader.resign()
    codes = [
        response.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
        for _, response in client.replies()
    ]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * (MANY - answered)
    assert broker.node.delayed_bytes == 0
    broker.node.advance()
    broker.node.settle()
    client.send(request(MANY), VERSION)
    broker.node.settle()
    ((_, response),) = client.replies()
    assert response.responses[0].partition_responses[0].base_offset == answered  # type: ignore[attr-defined]
