"""Fetches of followers: what the leader answers at once, and what comes with the next records."""

from __future__ import annotations

from typing import Any

from ottla.broker.handlers.fetch import HIGH_WATERMARK_DELAY_MS
from ottla.replication.partition import Partition
from ottla.wire.message import Message
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.broker import Broker, Client, produce

FETCH = 12
PRODUCE = 12
LEADER_EPOCH = 1
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def fetch(broker_id: int, session: tuple[int, int], offset: int | None) -> Message:
    """Return a fetch of a follower, which names the partition if it has another offset."""
    partitions = [
        FetchPartition(
            partition=0,
            current_leader_epoch=LEADER_EPOCH,
            fetch_offset=offset or 0,
            last_fetched_epoch=-1,
            partition_max_bytes=10**6,
        )
    ]
    return FetchRequest(
        replica_id=broker_id,
        max_wait=500,
        min_bytes=1,
        max_bytes=10**6,
        session_id=session[0],
        session_epoch=session[1],
        topics=[] if offset is None else [FetchTopic(topic="t", partitions=partitions)],
    )


class Follower:
    """A follower with a fetch session."""

    def __init__(self, broker: Broker, broker_id: int) -> None:
        self.client: Client = broker.connect()
        self.broker_id = broker_id
        self.client.send(fetch(broker_id, (0, 0), 0), FETCH)
        broker.pass_time(500)  # there is nothing to say
        (answer,) = self.answers()
        self.session, self.epoch = int(answer.session_id), 0

    def fetch(self, offset: int | None) -> None:
        self.epoch += 1
        self.client.send(fetch(self.broker_id, (self.session, self.epoch), offset), FETCH)

    def answers(self) -> list[Any]:
        self.client.broker.node.settle()
        return [answer for _, answer in self.client.replies()]

    def told(self) -> list[tuple[bool, int]]:
        """Return the answers: whether there are records, and the high watermark."""
        return [
            (bool(partition.records), partition.high_watermark)
            for answer in self.answers()
            for topic in answer.responses
            for partition in topic.partitions
        ]


def led(broker: Broker) -> Partition:
    return broker.topic_with("t", leader_epoch=LEADER_EPOCH, isr=(1, 2, 3), replicas=(1, 2, 3))


def test_a_high_watermark_alone_is_told_soon_and_with_records_if_some_come() -> None:
    broker = Broker()
    led(broker)
    first, second = Follower(broker, 2), Follower(broker, 3)
    producer = broker.connect()
    for follower in (first, second):
        follower.fetch(None)
    producer.send(produce("t"), PRODUCE)
    assert first.told() == second.told() == [(True, 0)]
    first.fetch(1)
    second.fetch(1)
    assert first.told() == second.told() == []
    assert len(producer.ids()) == 1  # it is committed
    producer.send(produce("t"), PRODUCE)
    assert first.told() == second.told() == [(True, 1)]
    first.fetch(2)
    second.fetch(2)
    broker.pass_time(HIGH_WATERMARK_DELAY_MS)
    assert first.told() == second.told() == [(False, 2)]
    first.fetch(None)
    broker.pass_time(HIGH_WATERMARK_DELAY_MS)
    assert first.told() == []  # there is no news: it waits as long as it wants


def test_a_commit_is_told_to_consumers_before_the_producer() -> None:
    broker = Broker()
    led(broker)
    first, second = Follower(broker, 2), Follower(broker, 3)
    producer, consumer = broker.connect(), broker.connect()
    consumer.send(fetch(-1, (0, -1), 0), FETCH)
    for follower in (first, second):
        follower.fetch(None)
    producer.send(produce("t"), PRODUCE)
    assert first.told() == second.told() == [(True, 0)]
    broker.node.ready.clear()
    first.fetch(1)
    second.fetch(1)
    broker.node.settle()
    assert broker.node.ready == [consumer.connection, producer.connection]


def test_where_consumers_read_from_followers_a_high_watermark_is_told_at_once() -> None:
    broker = Broker(None, **{"replica.selector.class": RACK_AWARE})
    led(broker)
    first, second = Follower(broker, 2), Follower(broker, 3)
    producer = broker.connect()
    for follower in (first, second):
        follower.fetch(None)
    producer.send(produce("t"), PRODUCE)
    assert first.told() == second.told() == [(True, 0)]
    first.fetch(1)
    second.fetch(1)
    broker.pass_time(0)
    assert first.told() == second.told() == [(False, 1)]


def test_a_follower_that_waits_hears_of_a_new_leader_epoch_at_once() -> None:
    broker = Broker()
    led(broker)
    follower = Follower(broker, 2)
    follower.fetch(None)
    broker.topic_with("t", leader_epoch=LEADER_EPOCH + 1, isr=(1, 2, 3), replicas=(1, 2, 3))
    broker.pass_time(0)
    (answer,) = follower.answers()
    assert answer.responses[0].partitions[0].error_code != 0
