"""A response about many groups ends with errors once it is large."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker import response_limit
from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.broker import Broker

GROUPS = ["a", "b", "c"]
REFUSED = ErrorCode.POLICY_VIOLATION


@pytest.fixture
def broker() -> Broker:
    made = Broker(group_initial_rebalance_delay_ms="0")
    made.topic("t")
    ask(made, FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS), 4)
    return made


def ask(broker: Broker, request: Message, version: int) -> Any:
    client = broker.connect()
    client.send(request, version)
    for _ in range(20):
        broker.pass_time(10)
        for _, response in client.replies():
            return response
    raise AssertionError("no answer")


def join(broker: Broker, group_id: str) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"m")
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout=10_000,
        rebalance_timeout=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    request.member_id = ask(broker, request, 7).member_id
    joined = ask(broker, request, 7)
    assert joined.error_code == 0
    own = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
    sync = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[own],
    )
    assert ask(broker, sync, 4).error_code == 0


def commit(broker: Broker, group_id: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    assert ask(broker, request, 8).topics[0].partitions[0].error_code == 0


def subscribe(broker: Broker, group_id: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=f"{group_id}1",
        rebalance_timeout=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert ask(broker, request, 1).error_code == 0


ASK = {
    "OffsetFetch": (
        commit,
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=g, topics=None) for g in GROUPS]
        ),
        8,
    ),
    "DescribeGroups": (join, DescribeGroupsRequest(groups=GROUPS), 5),
    "ConsumerGroupDescribe": (subscribe, ConsumerGroupDescribeRequest(group_ids=GROUPS), 1),
}


@pytest.mark.parametrize("api", ASK)
def test_later_groups_are_refused(
    broker: Broker, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, request, version = ASK[api]
    for group_id in GROUPS:
        begin(broker, group_id)
    assert [group.error_code for group in ask(broker, request, version).groups] == [0, 0, 0]
    monkeypatch.setattr(response_limit, "MOST_BYTES", 0)
    groups = ask(broker, request, version).groups
    assert [group.group_id for group in groups] == GROUPS
    assert [group.error_code for group in groups] == [0, REFUSED, REFUSED]
