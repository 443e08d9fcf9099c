"""Offsets of groups of the consumer protocol: who may commit and fetch them."""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tests.support.consumer_groups import GROUP, TOPIC, Broker, Consumer, delete_topic, settle
from tests.support.groups import commit, commit_request, fetch

MINUTE_MS = 60_000


def test_members_commit_in_their_epoch(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    assert consumer.commit(7) is ErrorCode.NONE
    assert consumer.commit(8, member_id="b") is ErrorCode.UNKNOWN_MEMBER_ID
    later = consumer.commit(8, generation_id_or_member_epoch=consumer.epoch + 1)
    assert later is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(broker.connect()) == {(TOPIC, 0): 7}


def test_a_commit_of_a_past_epoch_counts_for_what_the_member_kept(broker: Broker) -> None:
    first, second = Consumer(broker, "a"), Consumer(broker, "b")
    settle(broker, first)
    before = first.epoch
    settle(broker, first, second)
    assert first.epoch > before
    kept, gone = first.has()[0], second.has()[0]
    assert first.commit(5, kept, generation_id_or_member_epoch=before) is ErrorCode.NONE
    stale = first.commit(5, gone, generation_id_or_member_epoch=before)
    assert stale is ErrorCode.STALE_MEMBER_EPOCH
    too_early = second.commit(5, gone, generation_id_or_member_epoch=before)
    assert too_early is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(broker.connect()) == {(TOPIC, kept): 5}


@pytest.mark.parametrize("version", [2, 8])
def test_old_versions_cannot_say_an_epoch(broker: Broker, version: int) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    request = consumer_commit(consumer)
    response = consumer.client.ask(request, OffsetCommitResponse, version)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def consumer_commit(consumer: Consumer) -> OffsetCommitRequest:
    return commit_request(
        {(TOPIC, 0): 1}, generation_id=consumer.epoch, member_id=consumer.member_id
    )


def test_others_commit_only_when_the_group_is_empty(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 3}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    consumer.leave()
    assert commit(client, {(TOPIC, 0): 3}) == [ErrorCode.NONE]
    assert fetch(client) == {(TOPIC, 0): 3}


def test_members_fetch_in_their_epoch_and_others_as_they_like(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    consumer.commit(7)
    assert fetch_as(broker, None, -1) == ErrorCode.NONE
    assert fetch_as(broker, "a", consumer.epoch) == ErrorCode.NONE
    assert fetch_as(broker, "a", consumer.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_as(broker, "b", consumer.epoch) == ErrorCode.UNKNOWN_MEMBER_ID


def fetch_as(broker: Broker, member_id: str | None, epoch: int) -> int:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch)]
    )
    return broker.connect().ask(request, OffsetFetchResponse, 9).groups[0].error_code


def test_offsets_outlive_the_members_and_the_topic_s_end_ends_them(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    consumer.commit(7)
    consumer.leave()
    broker.crash_and_restart()
    assert fetch(broker.connect()) == {(TOPIC, 0): 7}
    delete_topic(broker, TOPIC)
    broker.settle()
    assert fetch(broker.connect()) == {}


def test_a_group_is_deleted_when_it_is_empty(broker: Broker) -> None:
    consumer = Consumer(broker, "a", [], regex=".*")
    settle(broker, consumer)
    consumer.commit(7)
    assert delete(broker) == ErrorCode.NON_EMPTY_GROUP
    consumer.leave()
    assert delete(broker) == ErrorCode.NONE
    assert GROUP not in broker.shard().groups
    broker.crash_and_restart()
    assert GROUP not in broker.shard().groups
    assert fetch(broker.connect()) == {}


def delete(broker: Broker) -> int:
    request = DeleteGroupsRequest(groups_names=[GROUP])
    return broker.connect().ask(request, DeleteGroupsResponse).results[0].error_code


def test_offsets_are_kept_for_their_time_after_the_group_is_empty() -> None:
    broker = Broker(offsets_retention_minutes="60", offsets_retention_check_interval_ms="60000")
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    consumer.commit(7)
    for _ in range(4):
        broker.pass_ms(30 * MINUTE_MS)
        consumer.abandon()
        consumer.poll()
    assert fetch(broker.connect()) == {(TOPIC, 0): 7}  # subscribed to
    consumer.leave()
    broker.pass_ms(59 * MINUTE_MS)
    assert fetch(broker.connect()) == {(TOPIC, 0): 7}
    broker.pass_ms(3 * MINUTE_MS)
    assert fetch(broker.connect()) == {}
    assert GROUP not in broker.shard().groups
