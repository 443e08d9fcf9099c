"""The ways of requests in docs/architecture.md are the ways that requests take.

A broker runs on a thread, and a client sends real requests to it. The first calls into each file
are noted. The files that the page lists must be among them, in the order of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from ottla.broker import sliced_work
from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.records.record import build_batch
from ottla.testing import Cluster
from ottla.wire.message import Message
from ottla.wire.messages import (
    create_topics,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    produce,
    sync_group,
)
from tests.harness.entered_files import EnteredFiles, assert_way, ways

M = TypeVar("M", bound=Message)
TIMEOUT_MS = 10_000
LONG_SLICE_MS = 60_000.0
GROUP = "readers"
pytestmark = pytest.mark.interpreted

FIRST_STEP = "src/ottla/network/receiver.py"


class Broker:
    """A broker whose thread is watched, and a connection to it."""

    def __init__(self, client: Client, entered: EnteredFiles) -> None:
        self._deadline = client.deadline("requests")
        self._connection = client.any(self._deadline)
        self._entered = entered

    def ask(self, request: Message, response: type[M]) -> M:
        """Send a request and return its response."""
        self._connection.send(request, self._deadline)
        return self._connection.receive(response, self._deadline)

    def way_of(self, request: Callable[[], object]) -> list[str]:
        """Return the files that a request enters, once those that it imports are imported."""
        request()
        self._entered.begin_again()
        request()
        return self._entered.files


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    # On a slow machine, work in slices would go on in the next wake-up, after other files.
    monkeypatch.setattr(sliced_work, "SLICE_MS", LONG_SLICE_MS)
    entered = EnteredFiles(start=FIRST_STEP)
    cluster = Cluster(properties={"group.initial.rebalance.delay.ms": "0"})
    with entered.in_new_threads():
        cluster.start()
    try:
        with Client(parse_addresses(cluster.bootstrap_servers)) as client:
            yield Broker(client, entered)
    finally:
        cluster.close()


def create_topic(broker: Broker, name: str) -> bytes:
    wanted = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = create_topics.CreateTopicsRequest(topics=[wanted], timeout=TIMEOUT_MS)
    (created,) = broker.ask(request, create_topics.CreateTopicsResponse).topics
    assert created.error_code == 0
    return created.topic_id


def produce_record(broker: Broker, topic_id: bytes) -> None:
    batch = bytes(build_batch([(b"key", b"value", 0, ())]))
    partition = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(topic_id=topic_id, partition_data=[partition])
    request = produce.ProduceRequest(acks=-1, timeout=TIMEOUT_MS, topic_data=[topic])
    (answer,) = broker.ask(request, produce.ProduceResponse).responses
    assert answer.partition_responses[0].error_code == 0


def fetch_records(broker: Broker, topic_id: bytes) -> None:
    partition = fetch.FetchPartition(partition=0, partition_max_bytes=1_000_000)
    topic = fetch.FetchTopic(topic_id=topic_id, partitions=[partition])
    request = fetch.FetchRequest(max_wait=TIMEOUT_MS, min_bytes=1, topics=[topic])
    (answer,) = broker.ask(request, fetch.FetchResponse).responses
    assert answer.partitions[0].records


def join(broker: Broker) -> heartbeat.HeartbeatRequest:
    """Join a classic group as its only member; return its heartbeat."""
    broker.ask(
        find_coordinator.FindCoordinatorRequest(key=GROUP, coordinator_keys=[GROUP]),
        find_coordinator.FindCoordinatorResponse,
    )
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_group.JoinGroupRequest(
        group_id=GROUP,
        session_timeout=TIMEOUT_MS,
        rebalance_timeout=TIMEOUT_MS,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = broker.ask(request, join_group.JoinGroupResponse)
    request.member_id = joined.member_id  # the first answer only gives an id (KIP-394)
    joined = broker.ask(request, join_group.JoinGroupResponse)
    assert joined.error_code == 0
    synced = broker.ask(
        sync_group.SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
        ),
        sync_group.SyncGroupResponse,
    )
    assert synced.error_code == 0
    return heartbeat.HeartbeatRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id
    )


def send_heartbeat(broker: Broker, request: heartbeat.HeartbeatRequest) -> None:
    assert broker.ask(request, heartbeat.HeartbeatResponse).error_code == 0


def test_produce(broker: Broker) -> None:
    topic_id = create_topic(broker, "events")
    assert_way("a Produce", broker.way_of(lambda: produce_record(broker, topic_id)))


def test_fetch(broker: Broker) -> None:
    topic_id = create_topic(broker, "events")
    produce_record(broker, topic_id)
    assert_way("a Fetch", broker.way_of(lambda: fetch_records(broker, topic_id)))


def test_heartbeat(broker: Broker) -> None:
    request = join(broker)
    assert_way("a Heartbeat", broker.way_of(lambda: send_heartbeat(broker, request)))


def test_create_topics(broker: Broker) -> None:
    names = iter(("first", "second"))
    assert_way("a CreateTopics", broker.way_of(lambda: create_topic(broker, next(names))))


def test_every_way_has_a_test() -> None:
    here = {"a Produce", "a Fetch", "a Heartbeat", "a CreateTopics"}
    elsewhere = {"a Spark read", "a load"}
    assert set(ways()) == here | elsewhere
