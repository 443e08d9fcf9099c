"""Static membership (KIP-345, KIP-814): a member that comes back is the same member."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.support.groups import (
    DELAY_MS,
    GROUP,
    SESSION_MS,
    TOPIC,
    Broker,
    Member,
    stable_group,
    subscription,
    sync_all,
)


def comeback(member: Member, **changes: object) -> Member:
    """Return the same member after a restart of its process: it has lost its member id."""
    fields: dict[str, Any] = {
        "instance_id": member.instance_id,
        "protocols": member.protocols,
        **changes,
    }
    return Member(member.broker, member.name, **fields)


def test_a_static_member_needs_no_id_first(broker: Broker) -> None:
    member = Member(broker, instance_id="i")
    member.send_join()
    assert member.is_parked
    broker.pass_ms(DELAY_MS)
    assert next(iter(broker.group().members)).startswith("i-")


def test_a_follower_comes_back_without_a_rebalance(broker: Broker) -> None:
    leader, follower = Member(broker, "a", instance_id="i1"), Member(broker, "b", instance_id="i2")
    stable_group(broker, leader, follower)
    again = comeback(follower).join()
    joined = again.joined
    assert joined.error_code == ErrorCode.NONE
    assert joined.generation_id == 1
    assert joined.member_id != follower.member_id
    assert joined.leader == leader.member_id
    assert joined.members == []
    assert again.sync().of(SyncGroupResponse).assignment == b"b"
    assert leader.heartbeat() == ErrorCode.NONE
    assert again.heartbeat() == ErrorCode.NONE


def test_a_leader_comes_back_and_must_not_assign(broker: Broker) -> None:
    leader, follower = Member(broker, "a", instance_id="i1"), Member(broker, "b", instance_id="i2")
    stable_group(broker, leader, follower)
    again = comeback(leader).join()
    assert again.leads
    assert again.joined.skip_assignment
    assert len(again.joined.members) == 2
    assert again.sync().of(SyncGroupResponse).assignment == b"a"
    assert follower.heartbeat() == ErrorCode.NONE


def test_a_leader_of_an_old_version_comes_back_as_a_follower(broker: Broker) -> None:
    leader, follower = Member(broker, "a", instance_id="i1"), Member(broker, "b", instance_id="i2")
    stable_group(broker, leader, follower)
    again = comeback(leader, join_version=8).join()
    assert again.joined.leader == leader.member_id
    assert again.joined.members == []
    assert again.sync().of(SyncGroupResponse).assignment == b"a"


def test_a_comeback_survives_a_restart_of_the_broker(broker: Broker) -> None:
    leader, follower = Member(broker, "a", instance_id="i1"), Member(broker, "b", instance_id="i2")
    stable_group(broker, leader, follower)
    again = comeback(follower).join()
    assert again.joined.error_code == ErrorCode.NONE
    broker.crash_and_restart()
    again.client = broker.connect()
    assert again.heartbeat() == ErrorCode.NONE
    assert again.sync().of(SyncGroupResponse).assignment == b"b"


def test_the_former_self_is_fenced(broker: Broker) -> None:
    old = Member(broker, "a", instance_id="i")
    stable_group(broker, old)
    new = comeback(old).join()
    assert new.joined.error_code == ErrorCode.NONE
    assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert old.commit(1) == ErrorCode.FENCED_INSTANCE_ID
    assert old.sync().of(SyncGroupResponse).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert old.join().joined.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert old.leave() == ErrorCode.FENCED_INSTANCE_ID
    assert new.heartbeat() == ErrorCode.NONE


def test_two_with_one_instance_id_fence_each_other_while_they_join(broker: Broker) -> None:
    first = Member(broker, "a", instance_id="i").join()
    second = Member(broker, "b", instance_id="i").join()
    assert first.joined.error_code == ErrorCode.FENCED_INSTANCE_ID
    broker.pass_ms(2 * DELAY_MS)
    assert second.joined.error_code == ErrorCode.NONE


def test_a_parked_sync_of_the_former_self_is_fenced(broker: Broker) -> None:
    leader, follower = Member(broker, "a"), Member(broker, "b", instance_id="i")
    leader.join()
    follower.join()
    broker.pass_ms(2 * DELAY_MS)
    assert not follower.leads
    follower.sync()
    comeback(follower).join()
    assert follower.synced.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert leader.joined.error_code == ErrorCode.NONE
    assert leader.sync({}).of(SyncGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_comeback_during_the_join_is_waited_for(broker: Broker) -> None:
    first, static = Member(broker, "a"), Member(broker, "b", instance_id="i")
    stable_group(broker, first, static)
    new = Member(broker, "c").join()
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    again = comeback(static).join()
    sync_all([first, new, again])


def test_a_comeback_that_changes_the_protocol_rebalances(broker: Broker) -> None:
    both = [("range", subscription(TOPIC)), ("sticky", subscription(TOPIC))]
    first = Member(broker, "a", protocols=both)
    static = Member(broker, "b", protocols=both, instance_id="i")
    stable_group(broker, first, static)
    again = comeback(static, protocols=[("sticky", subscription(TOPIC))]).join()
    assert again.is_parked
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    assert first.joined.protocol_name == "sticky"


def test_a_comeback_with_another_subscription_keeps_the_generation(broker: Broker) -> None:
    leader, static = Member(broker, "a"), Member(broker, "b", instance_id="i")
    stable_group(broker, leader, static)
    again = comeback(static, protocols=[("range", subscription(TOPIC, "more"))]).join()
    assert again.joined.generation_id == 1
    assert leader.heartbeat() == ErrorCode.NONE
    stored = {m.group_instance_id: m.subscription for m in broker.stored().members}
    assert stored["i"] == subscription(TOPIC, "more")


def test_a_silent_static_member_keeps_its_place_until_its_session_is_over(broker: Broker) -> None:
    static = Member(broker, "b", instance_id="i", session_ms=SESSION_MS * 10)
    first = Member(broker, "a", rebalance_ms=SESSION_MS)
    static.rebalance_ms = SESSION_MS
    stable_group(broker, first, static)
    Member(broker, "c", rebalance_ms=SESSION_MS).join()
    first.join()
    broker.pass_ms(SESSION_MS)
    assert static.member_id in {m.member_id for m in first.joined.members}


def test_static_members_that_do_not_rejoin_are_waited_for_till_their_sessions_end(
    broker: Broker,
) -> None:
    static = Member(broker, "a", instance_id="i", rebalance_ms=7000)
    stable_group(broker, static)
    dynamic = Member(broker, "b", rebalance_ms=7000).join()
    assert dynamic.is_parked
    dynamic.leave_by(broker.connect())
    broker.pass_ms(7000)
    assert broker.group().state_name == "PreparingRebalance"
    broker.pass_ms(SESSION_MS * 3)
    assert broker.group().state_name == "Empty"


def test_an_administrator_removes_a_static_member_by_its_instance_id(broker: Broker) -> None:
    first, static = Member(broker, "a"), Member(broker, "b", instance_id="i")
    stable_group(broker, first, static)
    request = LeaveGroupRequest(
        group_id=GROUP,
        members=[
            MemberIdentity(group_instance_id="i"),
            MemberIdentity(group_instance_id="other"),
            MemberIdentity(),
        ],
    )
    response = broker.connect().ask(request, LeaveGroupResponse)
    assert [(m.member_id, m.error_code) for m in response.members] == [
        ("", ErrorCode.NONE),
        ("", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert static.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("wrong", ["nobody", ""])
def test_a_foreign_instance_id_is_refused(broker: Broker, wrong: str) -> None:
    static = Member(broker, "a", instance_id="i")
    stable_group(broker, static)
    member_id = static.member_id
    stranger = Member(broker, "b", instance_id=wrong)
    stranger.member_id = member_id
    assert stranger.join().joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    other = Member(broker, "c", instance_id="i")
    other.member_id = "not-mine"
    assert other.join().joined.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_pending_id_is_no_static_members(broker: Broker) -> None:
    dynamic = Member(broker)
    dynamic.member_id = dynamic.send_join().of(JoinGroupResponse).member_id
    dynamic.instance_id = "i"
    assert dynamic.join().joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID
