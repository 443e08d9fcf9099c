"""ListOffsets with several leaders at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.cluster import NO_NODE, Client
from ottla.client.errors import TimedOut
from ottla.client.topics.offsets import LATEST_TIMESTAMP, OffsetAnswer, list_offsets
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, TopicPartition
from ottla.wire.api_table import ApiKey
from ottla.wire.message import Message
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.support.scripted_broker import FakeBroker, StartBroker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Offsets:
    """Answers with the requested timestamp plus its own number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.isolation_levels: list[int] = []

    def __call__(self, request: Message) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        self.isolation_levels.append(request.isolation_level)
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        offset=asked.timestamp + self.number,
                        error_code=0,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)


@pytest.fixture
def brokers(start_broker: StartBroker) -> list[FakeBroker]:
    """Return two brokers, 1 and 2, that know each other."""
    found = [start_broker(), start_broker()]
    members = [
        MetadataResponseBroker(node_id=number, host=broker.address.host, port=broker.address.port)
        for number, broker in enumerate(found, 1)
    ]
    for number, broker in enumerate(found, 1):
        broker.handlers[ApiKey.METADATA] = lambda _: MetadataResponse(
            brokers=members, controller_id=1, topics=[]
        )
        broker.handlers[ApiKey.LIST_OFFSETS] = Offsets(100 * number)
    return found


@pytest.fixture
def client(brokers: list[FakeBroker]) -> Iterator[Client]:
    with Client([brokers[0].address], timeout_ms=2_000) as client:
        yield client


def test_every_leader_is_asked_for_its_partitions_with_their_times(
    brokers: list[FakeBroker], client: Client
) -> None:
    leaders = {FIRST: 1, SECOND: 2}
    found = list_offsets(client, leaders, {FIRST: 5, SECOND: 7}, client.deadline("the test"))
    assert found == {FIRST: OffsetAnswer(0, 105), SECOND: OffsetAnswer(0, 207)}
    found = list_offsets(client, leaders, 9, client.deadline("the test"), read_committed=True)
    assert found == {FIRST: OffsetAnswer(0, 109), SECOND: OffsetAnswer(0, 209)}
    offsets = brokers[0].handlers[ApiKey.LIST_OFFSETS]
    assert isinstance(offsets, Offsets)
    assert offsets.isolation_levels == [0, 1]


def hang_up(_: Message) -> None:
    raise ConnectionError


def test_a_leader_that_is_away_leaves_the_others_their_answers(
    brokers: list[FakeBroker], client: Client
) -> None:
    brokers[0].handlers[ApiKey.LIST_OFFSETS] = hang_up
    leaders = {FIRST: 1, SECOND: 2, TopicPartition("t", 2): NO_NODE}
    found = list_offsets(client, leaders, 5, client.deadline("the test"))
    assert found == {
        FIRST: OffsetAnswer(ErrorCode.NETWORK_EXCEPTION, NO_OFFSET),
        SECOND: OffsetAnswer(0, 205),
        TopicPartition("t", 2): OffsetAnswer(ErrorCode.LEADER_NOT_AVAILABLE, NO_OFFSET),
    }


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(
    brokers: list[FakeBroker], client: Client
) -> None:
    late = brokers[0].handlers[ApiKey.LIST_OFFSETS]
    brokers[0].handlers[ApiKey.LIST_OFFSETS] = lambda _: None
    leaders = {FIRST: 1, SECOND: 2}
    with pytest.raises(TimedOut):
        list_offsets(client, leaders, 5, client.deadline("the test").at_most(200))
    brokers[0].handlers[ApiKey.LIST_OFFSETS] = late
    found = list_offsets(client, leaders, LATEST_TIMESTAMP, client.deadline("the test"))
    assert found == {FIRST: OffsetAnswer(0, 99), SECOND: OffsetAnswer(0, 199)}
