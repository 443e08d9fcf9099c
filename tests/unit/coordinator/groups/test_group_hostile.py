"""Requests no client sends: texts that no record can hold, and states they must not leave."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.support.groups import (
    GROUP,
    TOPIC,
    Broker,
    Member,
    commit,
    commit_request,
    fetch,
    stable_group,
    subscription,
)

LONG = "x" * 40_000


@pytest.mark.parametrize("group_id", [LONG, "ü" * 20_000])
def test_a_group_id_longer_than_a_records_is_refused_everywhere(
    broker: Broker, group_id: str
) -> None:
    client = broker.connect()
    code = ErrorCode.INVALID_GROUP_ID
    assert Member(broker, group_id=group_id).join().joined.error_code == code
    assert commit(client, {(TOPIC, 0): 1}, group_id=group_id) == [code]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    assert client.ask(request, OffsetFetchResponse, 9).groups[0].error_code == code
    described = client.ask(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse)
    assert described.groups[0].error_code == code
    deleted = client.ask(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse)
    assert deleted.results[0].error_code == code


def test_the_longest_group_id_works(broker: Broker) -> None:
    group_id = "x" * 32_767
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): 1}, group_id=group_id) == [0]
    stable_group(broker, Member(broker, group_id=group_id))
    broker.crash_and_restart()
    assert fetch(broker.connect(), group_id=group_id) == {(TOPIC, 0): 1}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": LONG}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [(LONG, b"")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocols": [("range", subscription(TOPIC)), ("ü" * 20_000, b"")]},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
    ],
)
def test_members_with_absurd_texts_stay_out_and_the_group_lives(
    broker: Broker, fields: dict[str, Any], code: ErrorCode
) -> None:
    member = Member(broker, "a")
    stable_group(broker, member)
    assert Member(broker, "b", **fields).join().joined.error_code == code
    assert member.heartbeat() == ErrorCode.NONE


def test_a_member_id_of_the_new_protocol_that_no_record_holds_is_refused(broker: Broker) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=LONG,
        member_epoch=0,
        rebalance_timeout=30_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    response = broker.connect().ask(request, ConsumerGroupHeartbeatResponse)
    assert response.error_code != ErrorCode.NONE
    assert commit(broker.connect(), {(TOPIC, 0): 1}, group_id="other") == [0]


def test_a_large_subscription_that_no_batch_holds_does_not_harm_other_groups(
    broker: Broker,
) -> None:
    other = Member(broker, "a", group_id="other")
    stable_group(broker, other)
    huge = Member(broker, "b", protocols=[("range", bytes(2_000_000))]).join()
    broker.pass_ms(3_000)
    assert huge.joined.error_code == ErrorCode.NONE
    assert huge.sync({huge.member_id: b"x"}).of(SyncGroupResponse).error_code == (
        ErrorCode.UNKNOWN_SERVER_ERROR
    )
    assert other.heartbeat() == ErrorCode.NONE
    assert other.commit(1) == ErrorCode.NONE


def test_a_partition_twice_in_one_commit(broker: Broker) -> None:
    client = broker.connect()
    request = commit_request({(TOPIC, 0): 1})
    request.topics[0].partitions.append(commit_request({(TOPIC, 0): 2}).topics[0].partitions[0])
    response = client.ask(request, OffsetCommitResponse, 9)
    assert [p.error_code for p in response.topics[0].partitions] == [0, 0]
    assert fetch(client) == {(TOPIC, 0): 2}


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_absurd_offsets_are_kept_as_they_are(broker: Broker, offset: int) -> None:
    client = broker.connect()
    assert commit(client, {(TOPIC, 0): offset}, leader_epoch=-(2**31)) == [0]
    broker.crash_and_restart()
    value = broker.committed(TOPIC, 0)
    assert (value.offset, value.leader_epoch) == (offset, -(2**31))


def test_ids_of_many_strangers_are_forgotten(broker: Broker) -> None:
    member = Member(broker)
    for _ in range(200):
        member.send_join()
    assert len(broker.group().pending_members) == 200
    broker.pass_ms(10_000)
    assert not broker.group().pending_members
