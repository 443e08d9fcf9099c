"""Consumers with a rack read from a replica in it (KIP-392), with librdkafka and on the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.config.broker_settings.replication import RACK_AWARE
from ottla.testing import Cluster
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.harness.confluent import Confluent
from tests.harness.deadline import eventually

RACKS = ("a", "b", "c")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    properties = {"replica.selector.class": RACK_AWARE}
    with Cluster(3, memory=True, racks=RACKS, properties=properties) as cluster:
        cluster.create_topic("orders")
        with Confluent().producer(cluster.bootstrap_servers, acks="all") as producer:
            for number in range(100):
                producer.send("orders", b"%d" % number)
            assert not any(ack.error for ack in producer.flush(60))
        yield cluster


def fetch(cluster: Cluster, broker: int, rack: str, offset: int = 0) -> tuple[int, int, int]:
    """Return the error, the preferred replica and the size of the records in a response."""
    address = cluster.bootstrap_servers.split(",")[broker - 1]
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="orders", partitions=[partition])],
        rack_id=rack,
    )
    with Client(parse_addresses(address)) as client:
        deadline = client.deadline("fetching")
        connection = client.any(deadline)
        connection.send(request, deadline, at_most=12)
        response = connection.receive(FetchResponse, deadline)
    (answer,) = response.responses[0].partitions
    return answer.error_code, answer.preferred_read_replica, len(answer.records or b"")


def rack_of(broker: int) -> str:
    return RACKS[broker - 1]


def check_sent_to(cluster: Cluster, leader: int, other: int) -> None:
    rack = rack_of(other)
    eventually(lambda: fetch(cluster, leader, rack) == (0, other, 0), "a follower is named", 60)
    eventually(lambda: fetch(cluster, other, rack)[2] > 100, "the follower has the records", 60)


def test_the_leader_names_the_replica_in_the_rack(cluster: Cluster) -> None:
    leader = cluster.leader("orders")
    for other in {1, 2, 3} - {leader}:
        check_sent_to(cluster, leader, other)
    for rack in ("", "elsewhere", rack_of(leader)):
        code, preferred, size = fetch(cluster, leader, rack)
        assert (code, preferred) == (0, -1)
        assert size > 100


def test_an_offset_that_no_follower_has_stays_with_the_leader(cluster: Cluster) -> None:
    leader = cluster.leader("orders")
    other = min({1, 2, 3} - {leader})
    assert fetch(cluster, leader, rack_of(other), offset=10_000)[1] == -1


def test_a_consumer_with_a_rack_gets_everything(cluster: Cluster) -> None:
    leader = cluster.leader("orders")
    for rack in RACKS:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": f"in-{rack}",
                "client.rack": rack,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition("orders", 0, 0)])
        values: list[bytes] = []

        def consumed(consumer: Consumer = consumer, values: list[bytes] = values) -> bool:
            values += [message.value() or b"" for message in consumer.consume(100, 0.2)]
            return len(values) >= 100

        eventually(consumed, f"100 messages in rack {rack}, led by {leader}", 60)
        assert values == [b"%d" % number for number in range(100)]
        consumer.close()
