"""A partition that another broker leads: this one serves what a follower may, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.metadata.records import NO_LEADER_CHANGE, PartitionChangeRecord
from ottla.model.errors import ErrorCode
from ottla.replication.fetch_partitions import FetchEntry
from ottla.replication.partition import Partition
from ottla.wire.message import Message
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.broker import Broker, error_codes, partition_image, produce

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def fetch(index: int, *, replica_id: int = -1, offset: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
    return FetchRequest(
        replica_id=replica_id,
        min_bytes=1,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )


def list_offsets(index: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=index, timestamp=-1)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])


def delete_records(index: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=index, offset=0)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])])


def offset_for_leader_epoch(index: int) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=index, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])]
    )


def describe_producers(index: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[index])])


NEED_THE_LEADER = [
    pytest.param(lambda index: produce(index=index, acks=-1), 9, id="Produce, acks=all"),
    pytest.param(lambda index: produce(index=index, acks=1), 9, id="Produce, acks=1"),
    pytest.param(fetch, 4, id="Fetch v4"),
    pytest.param(fetch, 10, id="Fetch v10"),
    pytest.param(lambda index: fetch(index, replica_id=3), 12, id="Fetch of a follower"),
    pytest.param(list_offsets, 7, id="ListOffsets"),
    pytest.param(delete_records, 2, id="DeleteRecords"),
    pytest.param(offset_for_leader_epoch, 4, id="OffsetForLeaderEpoch"),
    pytest.param(describe_producers, 0, id="DescribeProducers"),
]


def codes_of(broker: Broker, request: Message, version: int) -> set[int]:
    """Return the error codes of a response that are not NONE."""
    response = broker.connect().ask(request, version)
    return set(error_codes(response, version)) - {int(ErrorCode.NONE)}


@pytest.fixture
def elsewhere(broker: Broker) -> Partition:
    """Return a partition with a replica here, that broker 2 leads alone."""
    return broker.topic_with("t", leader=2, isr=(2,))


@pytest.mark.parametrize(("make", "version"), NEED_THE_LEADER)
def test_a_follower_refuses_what_needs_the_leader(
    broker: Broker, elsewhere: Partition, make: Callable[[int], Message], version: int
) -> None:
    assert codes_of(broker, make(0), version) == {NOT_LEADER}
    assert elsewhere.online_log().log_end_offset == 0


@pytest.mark.parametrize(("make", "version"), NEED_THE_LEADER)
def test_a_broker_without_a_replica_refuses_what_needs_the_leader(
    broker: Broker, make: Callable[[int], Message], version: int
) -> None:
    broker.topic()
    index = broker.add_partition_elsewhere()
    assert codes_of(broker, make(index), version) == {NOT_LEADER}
    assert codes_of(broker, make(index + 1), version) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(("make", "version"), NEED_THE_LEADER)
def test_a_partition_without_a_leader_refuses_what_needs_one(
    broker: Broker, make: Callable[[int], Message], version: int
) -> None:
    broker.topic_with("t", leader=-1, isr=(2,))
    assert codes_of(broker, make(0), version) == {NOT_LEADER}


def test_the_metadata_log_decides_who_leads(broker: Broker) -> None:
    """A partition that another broker leads alone takes no acks=all here."""
    partition = broker.topic()
    change = PartitionChangeRecord(
        partition_id=0, topic_id=partition.topic.topic_id, leader=2, isr=[2], replicas=[1, 2]
    )
    broker.write_metadata(change)
    assert codes_of(broker, produce(acks=-1), 9) == {NOT_LEADER}
    assert partition.online_log().log_end_offset == 0
    change.leader, change.isr = 1, [1, 2]
    broker.write_metadata(change)
    client = broker.connect()
    client.send(produce(acks=-1), 9)
    broker.node.settle()
    assert client.ids() == [], "the follower does not have it yet"
    assert partition.online_log().written_end == 1
    change.leader, change.isr = NO_LEADER_CHANGE, [1]
    broker.write_metadata(change)
    assert len(client.ids()) == 1


def test_a_write_that_waits_hears_of_the_new_leader_and_not_of_the_last_one(broker: Broker) -> None:
    partition = broker.topic_with("t", isr=(1, 2))
    producer = broker.connect()
    producer.send(produce(acks=-1), 10)
    broker.node.settle()
    assert producer.ids() == [], "the follower does not have it yet"
    change = PartitionChangeRecord(partition_id=0, topic_id=partition.topic.topic_id, leader=2)
    broker.write_metadata(change)
    ((_, response),) = producer.replies()
    answer: Any = response.responses[0].partition_responses[0]  # type: ignore[attr-defined]
    assert answer.error_code == NOT_LEADER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)


def test_consumers_may_read_from_a_follower(broker: Broker) -> None:
    partition = broker.topic()
    client = broker.connect()
    client.ask(produce(), 9)
    partition.take_role(partition_image(leader=2, isr=(1, 2)), 1)
    response = client.ask(fetch(0), 11)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert response.responses[0].partitions[0].records


def test_who_was_elected_serves_again(broker: Broker, elsewhere: Partition) -> None:
    elsewhere.take_role(partition_image(leader=1, isr=(1,), leader_epoch=2), 1)
    assert codes_of(broker, produce(), 9) == set()
    assert elsewhere.online_log().leader_epochs.latest_epoch == 2


def test_a_fetch_that_waits_hears_that_the_leader_has_changed(broker: Broker) -> None:
    partition = broker.topic()
    client = broker.connect()
    request = fetch(0)
    request.max_wait = 5000
    client.send(request, 10)
    assert client.ids() == []
    partition.take_role(partition_image(leader=2, isr=(1, 2)), 1)
    broker.node.settle()
    ((_, response),) = client.replies()
    assert set(error_codes(response, 10)) == {NOT_LEADER, ErrorCode.NONE}


# Followers that fetch from the leader here


@pytest.fixture
def led(broker: Broker) -> Partition:
    partition = broker.topic_with("t", isr=(1, 2))
    broker.connect().ask(produce(acks=1), 9)
    return partition


def test_the_fetch_of_a_follower_commits(broker: Broker, led: Partition) -> None:
    producer, follower = broker.connect(), broker.connect()
    waiting = producer.send(produce(), 9)
    broker.node.settle()
    answer = follower.ask(fetch(0, replica_id=2, offset=0), 12).responses[0].partitions[0]
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 0)
    assert answer.records, "followers read past the high watermark"
    assert producer.ids() == []
    follower.ask(fetch(0, replica_id=2, offset=2), 12)
    assert producer.ids() == [waiting]
    assert led.online_log().high_watermark == 2


def test_a_follower_that_waits_is_woken_by_an_append(broker: Broker, led: Partition) -> None:
    follower, consumer, producer = broker.connect(), broker.connect(), broker.connect()
    polls = fetch(0, replica_id=2, offset=1), fetch(0, offset=0)
    for poll, client in zip(polls, (follower, consumer), strict=True):
        poll.max_wait = 500
        client.send(poll, 12)
    broker.node.settle()
    assert led.online_log().high_watermark == 1
    assert len(consumer.ids()) == 1, "its record is committed now"
    polls[1].topics[0].partitions[0].fetch_offset = 1
    consumer.send(polls[1], 12)

    waiting = producer.send(produce(), 9)
    broker.node.settle()
    ((_, response),) = follower.replies()
    assert response.responses[0].partitions[0].records  # type: ignore[attr-defined]
    assert consumer.ids() == [], "there is nothing to read for it yet"
    assert producer.ids() == []
    polls[0].topics[0].partitions[0].fetch_offset = 2
    follower.send(polls[0], 12)
    broker.node.settle()
    assert producer.ids() == [waiting]
    assert len(consumer.ids()) == 1


def test_the_session_of_a_follower_looks_only_at_what_changed(broker: Broker) -> None:
    quiet, busy = (broker.topic_with(name, isr=(1, 2)) for name in ("quiet", "busy"))
    follower, producer = broker.connect(), broker.connect()
    topics = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        for name in ("quiet", "busy")
    ]
    request = FetchRequest(
        replica_id=2, min_bytes=1, max_bytes=1000, session_epoch=0, topics=topics
    )
    session_id = follower.ask(request, 12).session_id
    (watcher,) = quiet.watchers
    assert isinstance(watcher, FetchEntry)

    def fetch_again(epoch: int, offset: int | None = None) -> list[str]:
        again = FetchRequest(
            replica_id=2,
            min_bytes=1,
            max_bytes=1000,
            session_id=session_id,
            session_epoch=epoch,
        )
        if offset is not None:
            moved = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
            again.topics = [FetchTopic(topic="busy", partitions=[moved])]
        return [topic.topic for topic in follower.ask(again, 12).responses]

    assert fetch_again(1) == []
    assert not watcher.fetcher.dirty
    producer.send(produce("busy"), 9)
    broker.node.settle()
    assert [entry.key for entry in watcher.fetcher.dirty] == [b"busy"]
    assert fetch_again(2) == ["busy"]
    assert fetch_again(3, offset=1) == ["busy"], "the high watermark has moved"
    assert len(producer.ids()) == 1
    assert fetch_again(4) == []
    assert not watcher.fetcher.dirty
    assert busy.online_log().high_watermark == 1


def test_a_follower_ahead_of_the_leader_is_out_of_range(broker: Broker, led: Partition) -> None:
    answer = broker.connect().ask(fetch(0, replica_id=2, offset=5), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert led.online_log().high_watermark == 0


def test_a_follower_hears_where_its_epochs_leave_the_leaders(
    broker: Broker, led: Partition
) -> None:
    request = fetch(0, replica_id=2, offset=7)
    request.topics[0].partitions[0].last_fetched_epoch = 1
    answer = broker.connect().ask(request, 12).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (1, 1)
    assert led.online_log().high_watermark == 0


def test_an_epoch_that_the_leader_cannot_know_is_out_of_range(
    broker: Broker, led: Partition
) -> None:
    request = fetch(0, replica_id=2, offset=1)
    request.topics[0].partitions[0].last_fetched_epoch = 9
    answer = broker.connect().ask(request, 12).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_that_cuts_its_log_off_hears_the_high_watermark_after_that(
    broker: Broker, led: Partition
) -> None:
    follower = broker.connect()
    follower.ask(fetch(0, replica_id=2, offset=1), 12)
    assert led.online_log().high_watermark == 1
    diverging = fetch(0, replica_id=2, offset=7)
    diverging.session_epoch = 0
    diverging.topics[0].partitions[0].last_fetched_epoch = 1
    session_id = follower.ask(diverging, 12).session_id
    again = fetch(0, replica_id=2, offset=1)
    again.session_id, again.session_epoch, again.max_wait = session_id, 1, 0
    (topic,) = follower.ask(again, 12).responses
    assert topic.partitions[0].high_watermark == 1
    again.session_epoch, again.topics = 2, []
    assert follower.ask(again, 12).responses == []
