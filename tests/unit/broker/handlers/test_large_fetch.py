"""A fetch of very many partitions is handled in slices, and says what a small one says."""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.testing.fakes import FakeClock
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tests.support.broker import Broker, Client, produce
from tests.support.request_cost import TickingClock, cost_of

MANY = 600


def broker_with_topic(clock: FakeClock | None = None) -> Broker:
    broker = Broker(TickingClock() if clock is None else clock)
    topic = CreatableTopic(name="t", num_partitions=MANY, replication_factor=1)
    cost_of(broker, CreateTopicsRequest(topics=[topic]), 7)
    return broker


def fetch(
    indexes: range, *, max_wait: int = 0, min_bytes: int = 1, session: tuple[int, int] = (0, -1)
) -> FetchRequest:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in indexes]
    return FetchRequest(
        max_wait=max_wait,
        min_bytes=min_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", partitions=partitions)],
    )


def take(broker: Broker, client: Client, within_ms: int = 1000) -> FetchResponse | None:
    """Let time pass until there is a response, or not."""
    broker.node.settle()
    for _ in range(within_ms):
        if client.connection.out:
            ((_, response),) = client.replies()
            assert isinstance(response, FetchResponse)
            return response
        broker.pass_time(1)
    return None


def answer(broker: Broker, client: Client, request: FetchRequest) -> FetchResponse:
    client.send(request, 12)
    response = take(broker, client)
    assert response is not None
    return response


def indexes_with_records(response: FetchResponse) -> list[int]:
    return [
        item.partition_index
        for topic in response.responses
        for item in topic.partitions
        if item.records
    ]


def write(broker: Broker, index: int) -> None:
    broker.connect().ask(produce(index=index), 12)


@pytest.mark.parametrize("is_ticking", [True, False])
def test_it_has_the_records_of_all_partitions(is_ticking: bool) -> None:
    broker = broker_with_topic(None if is_ticking else FakeClock())
    for index in (0, 7, MANY - 1):
        write(broker, index)

    response = answer(broker, broker.connect(), fetch(range(MANY + 1)))

    assert indexes_with_records(response) == [0, 7, MANY - 1]
    (topic,) = response.responses
    assert [item.partition_index for item in topic.partitions] == list(range(MANY + 1))
    assert topic.partitions[MANY].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {item.error_code for item in topic.partitions[:MANY]} == {0}


@pytest.mark.parametrize("after_ms", [0, 1, 2, 5, 30])
def test_it_waits_for_records_even_if_they_come_between_two_slices(after_ms: int) -> None:
    broker = broker_with_topic()
    client = broker.connect()
    client.send(fetch(range(MANY), max_wait=100_000), 12)
    broker.node.settle()
    for _ in range(after_ms):
        broker.pass_time(1)
    assert not client.connection.out
    write(broker, 3)

    response = take(broker, client)

    assert response is not None
    assert indexes_with_records(response) == [3]
    assert client.connection.takes_requests
    assert not broker.node.topics.partition_named("t", 3).watchers


def test_it_is_answered_when_its_time_is_over() -> None:
    broker = broker_with_topic()
    client = broker.connect()
    client.send(fetch(range(MANY), max_wait=5000), 12)
    broker.node.settle()

    assert take(broker, client, 1000) is None
    response = take(broker, client, 10_000)

    assert response is not None
    assert indexes_with_records(response) == []


@pytest.mark.parametrize("after_ms", [0, 1, 3, 5, 100])
def test_nothing_is_left_of_it_when_its_client_goes(after_ms: int) -> None:
    broker = broker_with_topic()
    client = broker.connect()
    client.send(fetch(range(MANY), max_wait=100_000), 12)
    for _ in range(after_ms):
        broker.pass_time(1)

    broker.node.close_connection(client.connection)
    for _ in range(100):
        broker.pass_time(1)

    assert not any(partition.watchers for partition in broker.node.topics)
    assert not len(broker.node.sliced_work)


def test_a_session_tells_only_what_changed() -> None:
    broker = broker_with_topic()
    client = broker.connect()
    first = answer(broker, client, fetch(range(MANY), session=(0, 0)))
    session_id = first.session_id
    assert session_id
    write(broker, 5)

    second = answer(broker, client, fetch(range(0), session=(session_id, 1)))
    assert indexes_with_records(second) == [5]

    client.send(
        FetchRequest(
            session_id=session_id,
            session_epoch=2,
            forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(range(MANY)))],
        ),
        12,
    )
    third = take(broker, client)
    assert third is not None
    assert third.session_id == 0
    assert not len(broker.node.fetch_sessions)
    assert not any(partition.watchers for partition in broker.node.topics)


def test_a_session_that_is_unknown_is_refused() -> None:
    broker = broker_with_topic()

    response = answer(broker, broker.connect(), fetch(range(MANY), session=(99, 1)))

    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
