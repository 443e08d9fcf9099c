"""A Produce with very many partitions, or with one of them twice."""

from __future__ import annotations

import pytest

from ottla.model.errors import ApiError, ErrorCode
from ottla.records.record import build_batch
from ottla.testing.fakes import START_MS
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.support.broker import Broker, Client, Denying, partition_image
from tests.support.request_cost import TickingClock, cost_of

MANY = 600


def broker_with_topic() -> Broker:
    broker = Broker(TickingClock())
    topic = CreatableTopic(name="t", num_partitions=MANY, replication_factor=1)
    cost_of(broker, CreateTopicsRequest(topics=[topic]), 7)
    return broker


def batch(*values: bytes) -> bytes:
    return bytes(build_batch([(None, value, START_MS, ()) for value in values]))


def data(index: int, *values: bytes) -> PartitionProduceData:
    return PartitionProduceData(index=index, records=batch(*values))


def produce(
    *partitions: PartitionProduceData, acks: int = -1, timeout: int = 1000, topic: str = "t"
) -> ProduceRequest:
    topics = [TopicProduceData(name=topic, partition_data=list(partitions))]
    return ProduceRequest(acks=acks, timeout=timeout, topic_data=topics)


def send(broker: Broker, client: Client, request: ProduceRequest, version: int = 12) -> None:
    client.send(request, version)
    broker.node.settle()
    while len(broker.node.sliced_work):
        broker.pass_time(1)


def answer(broker: Broker, request: ProduceRequest, version: int = 12) -> TopicProduceResponse:
    client = broker.connect()
    send(broker, client, request, version)
    ((_, response),) = client.replies()
    assert isinstance(response, ProduceResponse)
    assert client.connection.takes_requests
    (topic,) = response.responses
    return topic


def end_offset(broker: Broker, index: int) -> int:
    return broker.node.topics.partition_named("t", index).online_log().log_end_offset


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_every_partition_has_its_records_and_its_result(version: int) -> None:
    broker = broker_with_topic()

    topic = answer(broker, produce(*[data(index, b"v") for index in range(MANY + 1)]), version)

    assert topic.name == "t"
    results = topic.partition_responses
    assert [result.index for result in results] == list(range(MANY + 1))
    assert {result.error_code for result in results[:MANY]} == {0}
    assert {result.base_offset for result in results[:MANY]} == {0}
    assert results[MANY].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {end_offset(broker, index) for index in range(MANY)} == {1}


def test_of_batches_for_one_partition_the_last_one_counts() -> None:
    broker = broker_with_topic()
    request = produce(data(0, b"a"), data(1, b"b"), data(0, b"c", b"d"))

    topic = answer(broker, request)

    results = [(result.index, result.error_code) for result in topic.partition_responses]
    assert results == [(0, 0), (1, 0)]
    assert (end_offset(broker, 0), end_offset(broker, 1)) == (2, 1)


def test_a_topic_that_is_named_twice_has_one_result() -> None:
    broker = broker_with_topic()
    request = produce(data(0, b"a"))
    request.topic_data = [*request.topic_data, *produce(data(0, b"c", b"d")).topic_data]

    topic = answer(broker, request)

    assert [result.index for result in topic.partition_responses] == [0]
    assert end_offset(broker, 0) == 2


def test_without_acks_the_next_request_follows() -> None:
    broker = broker_with_topic()
    client = broker.connect()

    send(broker, client, produce(*[data(index, b"v") for index in range(MANY)], acks=0))
    assert not client.connection.out
    assert client.connection.takes_requests
    send(broker, client, produce(data(0, b"w")))

    ((correlation_id, _),) = client.replies()
    assert correlation_id == 2
    assert end_offset(broker, 0) == 2


def test_without_acks_a_refusal_closes_the_connection() -> None:
    broker = broker_with_topic()
    client = broker.connect()

    send(broker, client, produce(*[data(index, b"v") for index in range(MANY + 1)], acks=0))

    assert client.connection.closing
    assert not client.connection.out


def test_wrong_acks_are_refused() -> None:
    broker = broker_with_topic()

    topic = answer(broker, produce(*[data(index, b"v") for index in range(MANY)], acks=2))

    codes = {result.error_code for result in topic.partition_responses}
    assert codes == {ErrorCode.INVALID_REQUIRED_ACKS}
    assert end_offset(broker, 0) == 0


def test_followers_have_their_time_after_the_last_append() -> None:
    broker = broker_with_topic()
    partition = broker.node.topics.partition_named("t", 3)
    partition.take_role(partition_image(index=3), 1)
    client = broker.connect()

    send(broker, client, produce(*[data(index, b"v") for index in range(MANY)], timeout=1000))
    assert not client.connection.out
    broker.pass_time(2000)
    while len(broker.node.sliced_work):
        broker.pass_time(1)

    ((_, response),) = client.replies()
    assert isinstance(response, ProduceResponse)
    results = response.responses[0].partition_responses
    late = [result.index for result in results if result.error_code]
    assert late == [3]
    assert results[3].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_request_that_is_not_allowed_is_refused_for_each_partition() -> None:
    broker = broker_with_topic()
    error = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    broker.node.pipeline.authorizer = Denying(error)

    topic = answer(broker, produce(*[data(index, b"v") for index in range(MANY)]))

    assert len(topic.partition_responses) == MANY
    assert {result.error_code for result in topic.partition_responses} == {error.code}
