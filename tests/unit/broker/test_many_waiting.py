"""Thousands of fetches that wait for the same batch or time are answered in turns."""

from __future__ import annotations

from ottla.broker.node import MOST_COMPLETED
from ottla.replication.timers import MOST_CALLS
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.broker import Broker, Client, produce
from tests.support.request_cost import count_calls

MANY = 3000
CALLS_A_FETCH = 150


def waiting_clients(broker: Broker) -> list[Client]:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic_id = broker.node.image.topics["t"].topic_id
    request = FetchRequest(
        max_wait=500,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    clients = [broker.connect() for _ in range(MANY)]
    for client in clients:
        client.send(request, 13)
    broker.node.settle()
    assert not any(client.connection.out for client in clients)
    return clients


def answered(clients: list[Client]) -> int:
    return sum(bool(client.connection.out) for client in clients)


def test_one_batch_is_told_to_some_in_each_wake_up() -> None:
    broker = Broker()
    broker.topic("t")
    clients = waiting_clients(broker)
    broker.connect().ask(produce("t"), 12)
    assert answered(clients) == MOST_COMPLETED
    for number in range(2, MANY // MOST_COMPLETED + 1):
        calls = count_calls(lambda: broker.pass_time(1))
        assert calls < MOST_COMPLETED * CALLS_A_FETCH
        assert answered(clients) == number * MOST_COMPLETED
    assert answered(clients) == MANY
    for client in clients:
        ((_, response),) = client.replies()
        assert response.responses[0].partitions[0].records  # type: ignore[attr-defined]


def test_a_common_deadline_ends_some_waits_in_each_wake_up() -> None:
    broker = Broker()
    broker.topic("t")
    clients = waiting_clients(broker)
    calls = count_calls(lambda: broker.pass_time(500))
    assert calls < 2 * MOST_CALLS * CALLS_A_FETCH
    assert 0 < answered(clients) <= MOST_CALLS
    while answered(clients) < MANY:
        before = answered(clients)
        broker.pass_time(0)
        assert before < answered(clients) <= before + MOST_CALLS
