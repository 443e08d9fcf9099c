"""Fetch and ListOffsets with read_committed: the last stable offset and aborted transactions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.records.batch import scan
from ottla.records.control import ControlType, build_marker
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.broker import Broker, Client, partition_image
from tests.support.log import batch_of
from tests.support.transactional_broker import (
    fetch_committed,
    markers,
    produce,
    with_coordinator,
)
from tests.support.transactions import transactional

LATEST = -1


@pytest.fixture
def client(broker: Broker) -> Client:
    broker.topic()
    with_coordinator(broker)
    return broker.connect()


def topic_id(broker: Broker) -> bytes:
    return broker.node.topics.partition_named("t", 0).topic.topic_id


def only(response: Any) -> Any:
    ((partition,),) = [topic.partitions for topic in response.responses]
    return partition


def offsets(partition: Any) -> list[int]:
    records = partition.records or b""
    return [batch.base_offset for batch in scan(records, 0, len(records))]


def aborted(partition: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()]


@pytest.mark.parametrize("version", range(4, 19))
def test_reads_end_at_the_last_stable_offset(broker: Broker, client: Client, version: int) -> None:
    client.ask(produce(batch_of(2), transactional_id=None), 9)
    client.ask(produce(transactional(7)), 11)
    client.ask(markers(7, commit=False))
    client.ask(produce(transactional(8)), 11)
    client.ask(produce(batch_of(1), transactional_id=None), 9)
    found = only(client.ask(fetch_committed(topic_id(broker)), version))
    assert offsets(found) == [0, 2, 3]
    assert aborted(found) == [(7, 2)]
    assert (found.high_watermark, found.last_stable_offset) == (6, 4)
    everything = only(client.ask(fetch_committed(topic_id(broker), isolation_level=0), version))
    assert offsets(everything) == [0, 2, 3, 4, 5]
    assert aborted(everything) == []
    client.ask(markers(8))
    found = only(client.ask(fetch_committed(topic_id(broker), 4), version))
    assert offsets(found) == [4, 5, 6]
    assert aborted(found) == []


@pytest.mark.parametrize("min_bytes", [0, 1, 10])
def test_a_long_poll_waits_for_the_end_of_the_transaction(
    broker: Broker, client: Client, min_bytes: int
) -> None:
    client.ask(produce(transactional(7)), 11)
    consumer = broker.connect()
    wanted = fetch_committed(topic_id(broker), max_wait=500, min_bytes=min_bytes)
    consumer.send(wanted)
    broker.node.settle()
    if min_bytes == 0:
        assert len(list(consumer.replies())) == 1  # it does not want to wait
        return
    client.ask(produce(transactional(7, 1)), 11)
    client.ask(produce(batch_of(1), transactional_id=None), 9)
    assert not list(consumer.replies())  # the high watermark alone is no news
    client.ask(markers(7))
    ((_, response),) = consumer.replies()
    assert offsets(only(response)) == [0, 1, 2, 3]


def test_a_long_poll_ends_empty_when_its_time_is_over(broker: Broker, client: Client) -> None:
    client.ask(produce(transactional(7)), 11)
    consumer = broker.connect()
    consumer.send(fetch_committed(topic_id(broker), max_wait=500))
    broker.pass_time(501)
    ((_, response),) = consumer.replies()
    assert offsets(only(response)) == []


def test_a_session_hears_of_the_end_of_a_transaction(broker: Broker, client: Client) -> None:
    client.ask(produce(transactional(7)), 11)
    consumer = broker.connect()
    first = consumer.ask(fetch_committed(topic_id(broker), session=(0, 0)))
    session, epoch = first.session_id, 1
    assert (session > 0, offsets(only(first))) == (True, [])

    def incremental(max_wait: int) -> Any:
        request = fetch_committed(topic_id(broker), max_wait=max_wait, session=(session, epoch))
        request.topics = []
        return request

    client.ask(produce(transactional(7, 1)), 11)
    consumer.send(incremental(500))
    broker.node.settle()
    assert not list(consumer.replies())
    client.ask(markers(7, commit=False))
    ((_, response),) = consumer.replies()
    assert offsets(only(response)) == [0, 1, 2]
    assert aborted(only(response)) == [(7, 0)]


def test_consumers_of_a_follower_wait_for_committed_records(broker: Broker, client: Client) -> None:
    client.ask(produce(transactional(7)), 11)
    partition = broker.node.topics.partition_named("t", 0)
    partition.take_role(partition_image(leader=2, leader_epoch=5), 1)
    consumer = broker.connect()
    consumer.send(fetch_committed(topic_id(broker), max_wait=500))
    broker.node.settle()
    follower, log = partition.follower, partition.online_log()
    assert follower is not None
    for batch in (transactional(7, 1), None):
        content = batch or _marker()
        content[0:8] = log.log_end_offset.to_bytes(8, "big")
        follower.append(content, memoryview(content), 0, len(content), broker.node.wall_ms)
        follower.write()
        assert not list(consumer.replies())
        follower.follow_leader(log.log_end_offset, 0)
        broker.node.settle()
    ((_, response),) = consumer.replies()
    assert offsets(only(response)) == [0, 1, 2]
    assert aborted(only(response)) == [(7, 0)]


def _marker() -> bytearray:
    return build_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )


def list_offsets(isolation_level: int, timestamp: int = LATEST) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[asked])],
    )


def listed(response: Any) -> tuple[int, int]:
    ((partition,),) = [topic.partitions for topic in response.topics]
    return partition.error_code, partition.offset


def test_list_offsets_tells_the_last_stable_offset(broker: Broker, client: Client) -> None:
    client.ask(produce(batch_of(2), transactional_id=None), 9)
    client.ask(produce(transactional(7)), 11)
    assert listed(client.ask(list_offsets(0))) == (0, 3)
    assert listed(client.ask(list_offsets(1))) == (0, 2)
    client.ask(markers(7))
    assert listed(client.ask(list_offsets(1))) == (0, 4)


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_new_leader_tells_no_end_before_it_knows_it(broker: Broker, isolation_level: int) -> None:
    partition, client = broker.topic_with(), broker.connect()
    client.send(produce(batch_of(2), transactional_id=None, acks=1), 9)
    broker.node.settle()
    list(client.replies())
    assert listed(client.ask(list_offsets(isolation_level))) == (0, 0)
    partition.take_role(partition_image(leader_epoch=2), 1)  # elected again, with an end of 2
    for timestamp in (LATEST, 0):
        code, _ = listed(client.ask(list_offsets(isolation_level, timestamp)))
        assert code == ErrorCode.OFFSET_NOT_AVAILABLE
    code, _ = listed(client.ask(list_offsets(isolation_level), 4))
    assert code == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.leader is not None
    partition.leader.record_fetch(2, 2, 0)
    assert listed(client.ask(list_offsets(isolation_level))) == (0, 2)
