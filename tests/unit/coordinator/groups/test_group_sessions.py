"""Heartbeats, sessions, leaving: who is in a group and who is not any more."""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.support.groups import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Broker,
    Member,
    stable_group,
    sync_all,
)


def test_heartbeats_keep_a_member_alive(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    for _ in range(5):
        broker.pass_ms(SESSION_MS - 1)
        assert member.heartbeat() == ErrorCode.NONE


def test_commits_keep_a_member_alive(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    for offset in range(5):
        broker.pass_ms(SESSION_MS - 1)
        assert member.commit(offset) == ErrorCode.NONE


def test_who_only_commits_holds_a_rebalance_up_until_its_timeout_and_no_longer(
    broker: Broker,
) -> None:
    busy, newcomer = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, busy)
    newcomer.join()
    for offset in range(6):  # as a client whose heartbeats do not get through
        broker.pass_ms(REBALANCE_MS // 6 - 1)
        assert busy.commit(offset) == ErrorCode.NONE
        assert newcomer.is_parked
    broker.pass_ms(6)
    assert [member.member_id for member in newcomer.joined.members] == [newcomer.member_id]
    assert busy.commit(6) == ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_between_join_and_sync_are_refused_and_keep_nobody_alive(broker: Broker) -> None:
    busy, other = Member(broker, "a"), Member(broker, "b", session_ms=SESSION_MS * 10)
    stable_group(broker, busy, other)
    for member in (busy, other):
        member.join()
    assert {member.joined.generation_id for member in (busy, other)} == {2}
    for offset in range(2):
        broker.pass_ms(SESSION_MS // 2 - 1)
        assert busy.commit(offset) == ErrorCode.REBALANCE_IN_PROGRESS
    broker.pass_ms(2)
    assert busy.commit(2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_newcomer_between_join_and_sync_is_told_by_heartbeats_and_commits_go_on(
    broker: Broker,
) -> None:
    busy, newcomer = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, busy)
    assert busy.join().joined.generation_id == 2
    assert busy.commit(1) == ErrorCode.REBALANCE_IN_PROGRESS
    newcomer.join()
    assert busy.commit(2) == ErrorCode.NONE
    assert busy.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer.is_parked
    busy.join()
    sync_all([busy, newcomer])
    assert busy.commit(3) == ErrorCode.NONE


def test_a_silent_member_is_out_exactly_when_its_session_is_over(broker: Broker) -> None:
    silent, other = Member(broker, "a"), Member(broker, "b", session_ms=SESSION_MS * 10)
    stable_group(broker, silent, other)
    broker.pass_ms(100)
    silent.heartbeat()
    broker.pass_ms(SESSION_MS - 1)
    assert other.heartbeat() == ErrorCode.NONE
    broker.pass_ms(1)
    assert other.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_there_is_one_timer_per_member_however_often_it_beats(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    before = len(broker.node.timers)
    for _ in range(50):
        member.heartbeat()
    assert len(broker.node.timers) == before


def test_the_last_member_to_die_leaves_an_empty_group(broker: Broker) -> None:
    stable_group(broker, Member(broker))
    broker.pass_ms(SESSION_MS)
    group = broker.group()
    assert group.state_name == "Empty"
    assert group.generation_id == 2
    assert broker.stored().members == []


def test_a_parked_member_needs_no_heartbeat(broker: Broker) -> None:
    first, second = Member(broker, "a"), Member(broker, "b", session_ms=REBALANCE_MS * 2)
    stable_group(broker, first, second)
    first.join()  # as the leader: a rebalance begins, and the second does not hear of it
    broker.pass_ms(SESSION_MS * 2)
    assert first.is_parked
    second.join()
    sync_all([first, second])


def test_a_new_member_is_not_parked_for_ever(broker: Broker) -> None:
    first = Member(broker, "a", session_ms=1_800_000, rebalance_ms=2_000_000)
    stable_group(broker, first)
    second = Member(broker, "b").join()
    broker.pass_ms(5 * 60 * 1000 - 1)
    assert second.is_parked
    broker.pass_ms(1)
    assert second.joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_connection_ended_in_the_join_is_out_a_session_later(broker: Broker) -> None:
    first, second = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, first)
    second.join()
    second.client.hang_up()
    first.join()
    assert len(first.joined.members) == 2
    first.sync({})
    for _ in range(SESSION_MS // 1000):
        broker.pass_ms(1000)
        first.heartbeat()
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_are_fenced(broker: Broker) -> None:
    member, other = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, member, other)
    assert member.heartbeat(generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat(generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_id="") == ErrorCode.INVALID_GROUP_ID
    assert member.heartbeat(group_instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat() == ErrorCode.NONE


def test_a_heartbeat_between_join_and_sync_is_fine(broker: Broker) -> None:
    member = Member(broker).join()
    broker.pass_ms(DELAY_MS)
    assert member.joined.generation_id == 1
    assert member.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("version", range(HeartbeatRequest.MAX_VERSION + 1))
def test_every_version_of_heartbeat(broker: Broker, version: int) -> None:
    member = Member(broker)
    stable_group(broker, member)
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member.member_id)
    assert member.client.ask(request, HeartbeatResponse, version).error_code == ErrorCode.NONE


def test_who_leaves_is_out_at_once(broker: Broker) -> None:
    first, second = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, first, second)
    assert first.leave() == ErrorCode.NONE
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.join().joined.generation_id == 2


def test_who_leaves_while_others_join_is_not_waited_for(broker: Broker) -> None:
    first, second, third = (Member(broker, name) for name in "abc")
    stable_group(broker, first, second)
    third.join()
    second.join()
    assert second.is_parked
    first.leave()
    assert not second.is_parked
    assert second.joined.generation_id == 2


def test_several_members_leave_with_one_request(broker: Broker) -> None:
    first, second, third = (Member(broker, name) for name in "abc")
    stable_group(broker, first, second, third)
    request = LeaveGroupRequest(
        group_id=GROUP,
        members=[
            MemberIdentity(member_id=first.member_id, reason="done"),
            MemberIdentity(member_id="nobody"),
            MemberIdentity(member_id=second.member_id),
        ],
    )
    response = broker.connect().ask(request, LeaveGroupResponse)
    assert [member.error_code for member in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert third.join().joined.generation_id == 2


@pytest.mark.parametrize("version", range(LeaveGroupRequest.MAX_VERSION + 1))
def test_every_version_of_leave(broker: Broker, version: int) -> None:
    member = Member(broker)
    stable_group(broker, member)

    def leave(group_id: str, member_id: str) -> LeaveGroupResponse:
        request = LeaveGroupRequest(
            group_id=group_id, member_id=member_id, members=[MemberIdentity(member_id=member_id)]
        )
        return member.client.ask(request, LeaveGroupResponse, version)

    for group_id, member_id, code in (
        (GROUP, "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("other", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        (GROUP, member.member_id, ErrorCode.NONE),
    ):
        response = leave(group_id, member_id)
        if version >= 3:
            assert response.error_code == ErrorCode.NONE
            assert [m.error_code for m in response.members] == [code]
        else:
            assert response.error_code == code
    assert leave("", "x").error_code == ErrorCode.INVALID_GROUP_ID


def test_sessions_begin_anew_after_a_restart(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    broker.pass_ms(SESSION_MS - 1)
    broker.crash_and_restart()
    broker.pass_ms(SESSION_MS - 200)
    member.client = broker.connect()
    assert member.heartbeat() == ErrorCode.NONE
    broker.pass_ms(SESSION_MS)
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_in_a_rebalance_falls_back_to_its_last_generation(broker: Broker) -> None:
    first, second = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, first)
    second.join()
    first.join()
    assert first.joined.generation_id == 2
    broker.crash_and_restart()
    assert broker.group().generation_id == 1
    assert list(broker.group().members) == [first.member_id]
    for member in (first, second):
        member.client = broker.connect()
    assert first.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert first.commit(1) == ErrorCode.ILLEGAL_GENERATION
    assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.sync({}).of(SyncGroupResponse).error_code == ErrorCode.ILLEGAL_GENERATION
    first.join()
    assert first.joined.generation_id == 2


def test_a_thousand_members_settle() -> None:
    broker = Broker()
    members = [Member(broker, str(i), session_ms=60_000) for i in range(1000)]
    for member in members:
        member.join()
    broker.pass_ms(DELAY_MS * 3)
    sync_all(members)
    assert len(broker.group().members) == 1000
    broker.crash_and_restart()
    assert len(broker.group().members) == 1000
