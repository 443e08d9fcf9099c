"""A reply is bounded in bytes before it is made, and the next request waits for a large one."""

from __future__ import annotations

import pytest

from ottla.broker.connection import LARGE_REPLY_BYTES
from ottla.broker.handlers.fetch import MOST_COPIED_BYTES, MOST_RANGES, SMALL_READ_BYTES
from ottla.log.segment.file_slice import FileSlice
from ottla.records.record import build_batch
from ottla.testing.fakes import START_MS
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.broker import Broker, Client

VERSION = 12
PARTITIONS = 100


@pytest.fixture
def broker() -> Broker:
    return Broker()


def fill(client: Client, value_bytes: int) -> None:
    """Create a topic with one batch in each partition."""
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[topic]))
    records = bytes(build_batch([(None, bytes(value_bytes), START_MS, ())]))
    data = [PartitionProduceData(index=index, records=records) for index in range(PARTITIONS)]
    client.ask(
        ProduceRequest(
            acks=1, timeout=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
        ),
        VERSION,
    )


def fetch(session_id: int = 0, session_epoch: int = -1) -> FetchRequest:
    """Return a fetch of all partitions; of a session unless its epoch is 0 or less."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=10**6)
        for index in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait=0,
        min_bytes=1,
        max_bytes=2**31 - 1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[] if session_epoch > 0 else [FetchTopic(topic="t", partitions=wanted)],
    )


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_records_that_are_copied_are_bounded_over_all_partitions(
    broker: Broker, session_epoch: int
) -> None:
    client = broker.connect()
    fill(client, SMALL_READ_BYTES - 200)
    client.send(fetch(session_epoch=session_epoch), VERSION)
    (reply,) = client.connection.out
    assert isinstance(reply, bytes)
    assert MOST_COPIED_BYTES <= len(reply) <= MOST_COPIED_BYTES + SMALL_READ_BYTES + 100 * 1024


def test_files_that_a_reply_keeps_open_are_bounded(broker: Broker) -> None:
    client = broker.connect()
    fill(client, 2 * SMALL_READ_BYTES)
    client.send(fetch(), VERSION)
    assert sum(isinstance(part, FileSlice) for part in client.connection.out) == MOST_RANGES


def test_a_session_gets_the_rest_with_its_next_fetches(broker: Broker) -> None:
    client = broker.connect()
    fill(client, SMALL_READ_BYTES - 200)
    first = client.ask(fetch(session_epoch=0), VERSION)
    got = {each.partition_index for each in first.responses[0].partitions if each.records}
    for epoch in range(1, 5):
        reply = client.ask(fetch(first.session_id, epoch), VERSION)
        got |= {each.partition_index for each in reply.responses[0].partitions if each.records}
    assert got == set(range(PARTITIONS))


def test_a_full_reply_does_not_wait_for_more_bytes(broker: Broker) -> None:
    client = broker.connect()
    fill(client, SMALL_READ_BYTES - 200)
    request = fetch()
    request.max_wait, request.min_bytes = 10_000, 2**31 - 1
    assert client.ask(request, VERSION).responses


def test_no_request_is_taken_behind_a_large_reply_until_it_is_sent(broker: Broker) -> None:
    client = broker.connect()
    fill(client, SMALL_READ_BYTES - 200)
    client.send(fetch(), VERSION)
    assert client.connection.large_bytes > MOST_COPIED_BYTES
    assert not client.connection.takes_requests
    assert len(client.ids()) == 1
    assert client.connection.takes_requests


def test_a_large_reply_behind_one_that_waits_counts_until_both_are_sent(broker: Broker) -> None:
    partition = broker.topic_with("replicated")
    client = broker.connect()
    fill(client, SMALL_READ_BYTES - 200)
    records = bytes(build_batch([(b"k", b"v", START_MS, ())]))
    data = [PartitionProduceData(index=0, records=records)]
    topic = TopicProduceData(name="replicated", partition_data=data)
    client.send(ProduceRequest(acks=-1, timeout=1000, topic_data=[topic]), VERSION)
    broker.node.settle()
    client.send(fetch(), VERSION)
    assert (client.connection.out, client.connection.takes_requests) == ([], False)
    client.connection.sent()
    assert not client.connection.takes_requests
    partition.as_leader().record_fetch(2, 1, 0.0)
    broker.node.settle()
    assert len(client.ids()) == 2
    assert client.connection.takes_requests


def test_small_replies_are_not_counted(broker: Broker) -> None:
    client = broker.connect()
    client.send(MetadataRequest(topics=[]))
    (reply,) = client.connection.out
    assert isinstance(reply, bytes)
    assert len(reply) < LARGE_REPLY_BYTES
    assert client.connection.large_bytes == 0


def test_a_large_response_is_not_copied(broker: Broker) -> None:
    client = broker.connect()
    names = [f"{number:05}".ljust(200, "x") for number in range(3000)]
    request = DescribeGroupsRequest(groups=names)
    client.send(request, 6)
    while not client.connection.out:
        broker.node.settle()
        broker.pass_time(1)
    head, body = client.connection.out
    assert isinstance(head, bytes)
    assert isinstance(body, bytes)
    assert len(body) > 600_000
    ((_, response),) = client.replies()
    assert isinstance(response, DescribeGroupsResponse)
    assert [group.group_id for group in response.groups] == names
