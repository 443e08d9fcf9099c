"""A LeaveGroup with many members says what several small ones say."""

from __future__ import annotations

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.records import GroupMetadataValue, MemberMetadata
from ottla.model.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker import Broker
from tests.support.request_cost import TickingClock, cost_of

MANY = 130


def broker_with_group() -> tuple[Broker, ClassicGroup]:
    broker = Broker(TickingClock())
    broker.topic("t")
    cost_of(broker, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    commit = OffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[commit])]
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    cost_of(broker, request, 9)
    group = broker.node.groups.runtime_of("g").shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    members = [
        MemberMetadata(member_id=f"m{number}", session_timeout=1000, rebalance_timeout=1000)
        for number in range(MANY)
    ]
    group.install(
        GroupMetadataValue(
            protocol_type="consumer", generation=1, protocol="range", leader="m0", members=members
        )
    )
    return broker, group


def leave(broker: Broker, *member_ids: str) -> LeaveGroupResponse:
    client = broker.connect()
    members = [MemberIdentity(member_id=member_id) for member_id in member_ids]
    client.send(LeaveGroupRequest(group_id="g", members=members), 5)
    broker.node.settle()
    while not client.connection.out:
        broker.pass_time(1)
    ((_, response),) = client.replies()
    assert isinstance(response, LeaveGroupResponse)
    assert client.connection.takes_requests
    return response


def test_all_members_leave() -> None:
    broker, group = broker_with_group()
    names = [f"m{number}" for number in range(MANY)]

    response = leave(broker, *names)

    assert response.error_code == ErrorCode.NONE
    assert [each.member_id for each in response.members] == names
    assert {each.error_code for each in response.members} == {ErrorCode.NONE}
    assert group.is_empty
    assert not group.members


def test_members_that_are_unknown_or_named_again_are_refused() -> None:
    broker, group = broker_with_group()
    names = [f"m{number}" for number in range(100)]

    response = leave(broker, *names, "nobody", "m5")

    codes = [each.error_code for each in response.members]
    assert codes[:100] == [ErrorCode.NONE] * 100
    assert codes[100:] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert len(group.members) == MANY - 100


def test_a_group_that_does_not_exist_has_no_members() -> None:
    broker, _ = broker_with_group()
    client = broker.connect()
    members = [MemberIdentity(member_id="m")] * MANY
    client.send(LeaveGroupRequest(group_id="other", members=members), 5)
    broker.node.settle()
    while not client.connection.out:
        broker.pass_time(1)
    ((_, response),) = client.replies()
    assert isinstance(response, LeaveGroupResponse)
    assert [each.error_code for each in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * MANY
