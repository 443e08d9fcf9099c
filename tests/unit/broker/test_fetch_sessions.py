"""Fetch sessions between requests: what they cost the partitions, and what they do not miss."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.replication.fetch_partitions import FetchEntry
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.broker import Broker, Client, produce

FETCH = 12
PRODUCE = 12


def fetch(
    topics: dict[str, int],
    *,
    session_id: int = 0,
    epoch: int = 0,
    min_bytes: int = 1,
    wait: int = 0,
) -> Message:
    return FetchRequest(
        replica_id=-1,
        max_wait=wait,
        min_bytes=min_bytes,
        max_bytes=10**6,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=0,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        partition_max_bytes=10**6,
                    )
                ],
            )
            for topic, offset in topics.items()
        ],
        rack_id="",
    )


def found(answer: Any) -> dict[str, bool]:
    """Return the topics of an answer, and which of them have records."""
    return {topic.topic: bool(topic.partitions[0].records) for topic in answer.responses}


def open_session(client: Client, *topics: str) -> int:
    answer = client.ask(fetch(dict.fromkeys(topics, 0)), FETCH)
    assert answer.session_id > 0
    return int(answer.session_id)


def test_a_session_that_nobody_uses_is_told_once() -> None:
    broker = Broker()
    partition = broker.topic("t")
    clients = [broker.connect() for _ in range(20)]
    for client in clients:
        open_session(client, "t")
    assert len(partition.watchers) == 20
    producer = broker.connect()
    producer.ask(produce("t"), PRODUCE)
    assert not partition.watchers
    for number, session in enumerate(list(broker.node.fetch_sessions._sessions)):
        answer = clients[number].ask(fetch({}, session_id=session, epoch=1), FETCH)
        assert found(answer) == {"t": True}
    assert not partition.watchers  # there is more to read: no need to hear of it


def test_commits_of_a_partition_tell_only_the_sessions_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    partition = broker.topic("t")
    for _ in range(20):
        open_session(broker.connect(), "t")
    told: list[FetchEntry] = []
    original = FetchEntry.partition_changed

    def changed(entry: FetchEntry) -> None:
        told.append(entry)
        original(entry)

    producer, waiting = broker.connect(), broker.connect()
    producer.ask(produce("t"), PRODUCE)
    session = open_session(waiting, "t")
    waiting.ask(fetch({"t": 1}, session_id=session, epoch=1), FETCH)
    waiting.send(fetch({}, session_id=session, epoch=2, wait=1000), FETCH)
    (entry,) = partition.watchers
    assert isinstance(entry, FetchEntry)
    monkeypatch.setattr(FetchEntry, "partition_changed", changed)
    producer.ask(produce("t"), PRODUCE)
    assert told == [entry]
    ((_, answer),) = waiting.replies()
    assert found(answer) == {"t": True}


def test_a_session_that_waits_for_many_bytes_hears_of_all_its_partitions() -> None:
    broker = Broker()
    for name in ("a", "b", "c"):
        broker.topic(name)
    client, producer = broker.connect(), broker.connect()
    session = open_session(client, "a", "b", "c")
    producer.ask(produce("a"), PRODUCE)  # told between two requests: does not watch any more
    size = broker.node.topics.partition_named("a", 0).online_log().size
    client.send(fetch({}, session_id=session, epoch=1, min_bytes=3 * size, wait=1000), FETCH)
    producer.ask(produce("b"), PRODUCE)
    assert not list(client.replies())
    producer.ask(produce("a"), PRODUCE)
    ((_, answer),) = client.replies()
    assert found(answer) == {"a": True, "b": True}


def test_no_change_is_missed_between_requests() -> None:
    broker = Broker()
    broker.topic("t")
    client, producer = broker.connect(), broker.connect()
    session = open_session(client, "t")
    for offset in range(5):
        producer.ask(produce("t"), PRODUCE)
        answer = client.ask(fetch({}, session_id=session, epoch=2 * offset + 1), FETCH)
        assert found(answer) == {"t": True}
        # The consumer has it and asks for the next one; there is nothing yet.
        answer = client.ask(
            fetch({"t": offset + 1}, session_id=session, epoch=2 * offset + 2), FETCH
        )
        assert found(answer) in ({}, {"t": False})


def test_a_fetch_without_a_session_watches_only_while_it_waits() -> None:
    broker = Broker()
    partition = broker.topic("t")
    client = broker.connect()
    client.ask(fetch({"t": 0}, epoch=-1), FETCH)
    assert not partition.watchers
    client.send(fetch({"t": 0}, epoch=-1, wait=500), FETCH)
    assert len(partition.watchers) == 1
    broker.pass_time(500)
    assert len(list(client.replies())) == 1
    assert not partition.watchers
