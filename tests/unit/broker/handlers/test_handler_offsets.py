"""Offsets, epochs and producers: answers as Kafka gives them, for empty partitions too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

Ask = Callable[..., object]


@pytest.fixture(autouse=True)
def empty_topic(ask: Ask) -> None:
    topic = CreatableTopic(name="empty", num_partitions=1, replication_factor=1)
    ask(CreateTopicsRequest(topics=[topic]))


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (0, -1, 0)),
        (-2, (0, -1, 0)),
        (-3, (-1, -1, -1)),
        (-4, (0, -1, 0)),
        (-5, (-1, -1, -1)),
        (0, (-1, -1, -1)),
    ],
)
def test_offsets_of_an_empty_partition(
    ask: Ask, timestamp: int, expected: tuple[int, int, int]
) -> None:
    topic = ListOffsetsTopic(name="empty", partitions=[ListOffsetsPartition(timestamp=timestamp)])
    response = ask(ListOffsetsRequest(replica_id=-1, topics=[topic]))
    assert isinstance(response, ListOffsetsResponse)
    found = response.topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    assert (found.offset, found.timestamp, found.leader_epoch) == expected


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, (0, 0)), (1, (-1, -1)), (-1, (-1, -1)), (-2, (-2, 0))]
)
def test_epochs_of_an_empty_partition(ask: Ask, epoch: int, expected: tuple[int, int]) -> None:
    topic = OffsetForLeaderTopic(
        topic="empty", partitions=[OffsetForLeaderPartition(leader_epoch=epoch)]
    )
    response = ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))
    assert isinstance(response, OffsetForLeaderEpochResponse)
    found = response.topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    assert (found.leader_epoch, found.end_offset) == expected


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(5, -1), (-1, 5)])
def test_a_producer_id_and_its_epoch_come_together(
    ask: Ask, producer_id: int, producer_epoch: int
) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, producer_id=producer_id, producer_epoch=producer_epoch
    )
    response = ask(request, 4)
    assert isinstance(response, InitProducerIdResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not host this topic-partition"),
    ],
)
def test_producers_of_a_topic_that_is_not_there(
    ask: Ask, topic: str, code: ErrorCode, message: str
) -> None:
    asked = TopicRequest(name=topic, partition_indexes=[0])
    response = ask(DescribeProducersRequest(topics=[asked]))
    assert isinstance(response, DescribeProducersResponse)
    found = response.topics[0].partitions[0]
    assert found.error_code == code
    assert message in (found.error_message or "")
