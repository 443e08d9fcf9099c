"""JoinGroup and SyncGroup: how a generation comes to be."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.support.groups import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Broker,
    Member,
    stable_group,
    subscription,
    sync_all,
)


def test_a_first_member_is_told_its_id_then_parked_for_the_initial_delay(broker: Broker) -> None:
    member = Member(broker)
    required = member.send_join().of(JoinGroupResponse)
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert required.member_id.startswith("client-")
    member.member_id = required.member_id
    member.join()
    broker.pass_ms(DELAY_MS - 1)
    assert member.is_parked
    broker.pass_ms(1)
    joined = member.joined
    assert joined.error_code == ErrorCode.NONE
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id == required.member_id
    assert joined.protocol_name == "range"
    assert joined.protocol_type == "consumer"
    assert [(m.member_id, m.metadata) for m in joined.members] == [
        (required.member_id, subscription(TOPIC))
    ]


def test_old_versions_need_no_member_id(broker: Broker) -> None:
    member = Member(broker, join_version=3).join()
    broker.pass_ms(DELAY_MS)
    assert member.joined.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(JoinGroupRequest.MAX_VERSION + 1))
def test_every_version_joins(broker: Broker, version: int) -> None:
    member = Member(broker, join_version=version).join()
    broker.pass_ms(DELAY_MS)
    assert member.joined.error_code == ErrorCode.NONE
    assert member.joined.protocol_name == "range"


def test_version_0_rebalances_by_its_session_timeout(broker: Broker) -> None:
    member = Member(broker, join_version=0)
    stable_group(broker, member)
    assert broker.group().rebalance_timeout_ms == SESSION_MS


def test_each_new_member_prolongs_the_initial_delay(broker: Broker) -> None:
    first, second, third = (Member(broker, name) for name in "abc")
    first.join()
    broker.pass_ms(DELAY_MS - 1)
    second.join()
    broker.pass_ms(1)
    assert first.is_parked
    broker.pass_ms(DELAY_MS - 1)
    third.join()
    broker.pass_ms(1)
    assert first.is_parked
    broker.pass_ms(DELAY_MS)
    leader = sync_all([first, second, third])
    assert leader is first
    assert [m.joined.generation_id for m in (first, second, third)] == [1, 1, 1]
    assert [len(m.joined.members) for m in (first, second, third)] == [3, 0, 0]


def test_the_initial_delay_ends_with_the_rebalance_timeout(broker: Broker) -> None:
    first = Member(broker, rebalance_ms=5000).join()
    for _ in range(4):
        broker.pass_ms(1400)
        Member(broker, rebalance_ms=5000).join()
    assert not first.is_parked


def test_the_leader_assigns_and_everybody_gets_its_part(broker: Broker) -> None:
    members = [Member(broker, name) for name in "abc"]
    stable_group(broker, *members)
    assert [member.synced.assignment for member in members] == [b"a", b"b", b"c"]
    assert broker.group().state_name == "Stable"


def test_followers_wait_for_the_leader(broker: Broker) -> None:
    leader, follower = Member(broker, "a").join(), Member(broker, "b").join()
    broker.pass_ms(2 * DELAY_MS)
    assert leader.leads
    assert not follower.leads
    follower.sync()
    assert follower.is_parked
    leader.sync({follower.member_id: b"all"})
    assert follower.synced.assignment == b"all"
    assert leader.synced.assignment == b""  # nothing was assigned to it


def test_a_late_sync_gets_the_assignment_at_once(broker: Broker) -> None:
    leader, follower = Member(broker, "a").join(), Member(broker, "b").join()
    broker.pass_ms(2 * DELAY_MS)
    assert leader.leads
    leader.sync({follower.joined.member_id: b"all"})
    assert follower.sync().of(SyncGroupResponse).assignment == b"all"


def test_a_member_that_never_syncs_is_out_after_the_rebalance_timeout(broker: Broker) -> None:
    leader, silent = Member(broker, "a"), Member(broker, "b", session_ms=REBALANCE_MS * 2)
    leader.join()
    silent.join()
    broker.pass_ms(2 * DELAY_MS)
    assert leader.leads
    leader.sync({leader.member_id: b"x"})
    silent.joined  # noqa: B018
    for _ in range(REBALANCE_MS // 1000):
        broker.pass_ms(1000)
        leader.heartbeat()
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    leader.join()
    assert leader.joined.generation_id == 2
    assert len(leader.joined.members) == 1
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_makes_everybody_join_again(broker: Broker) -> None:
    first, second = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, first)
    second.join()
    assert second.is_parked
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    leader = sync_all([first, second])
    assert leader is first
    assert first.joined.generation_id == second.joined.generation_id == 2
    assert first.heartbeat() == second.heartbeat() == ErrorCode.NONE


def test_who_does_not_join_again_in_time_is_out(broker: Broker) -> None:
    first = Member(broker, "a", session_ms=REBALANCE_MS * 2)
    second = Member(broker, "b")
    stable_group(broker, first)
    second.join()
    broker.pass_ms(REBALANCE_MS - 1)
    assert second.is_parked
    broker.pass_ms(1)
    assert second.leads
    assert len(second.joined.members) == 1
    assert first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_holds_the_join_up_until_its_session_is_over(broker: Broker) -> None:
    first, second, third = (Member(broker, name) for name in "abc")
    stable_group(broker, first, second)
    third.send_join()  # gets an id, and does not come back with it
    first.leave()
    second.join()
    broker.pass_ms(SESSION_MS - 1)
    assert second.is_parked
    broker.pass_ms(1)
    assert second.joined.generation_id == 2


def test_a_pending_member_may_leave(broker: Broker) -> None:
    first, second, third = (Member(broker, name) for name in "abc")
    stable_group(broker, first, second)
    third.member_id = third.send_join().of(JoinGroupResponse).member_id
    first.leave()
    second.join()
    assert second.is_parked
    assert third.leave() == ErrorCode.NONE
    assert second.joined.generation_id == 2


def test_the_protocol_most_members_prefer_wins(broker: Broker) -> None:
    ab, ba = [("a", b"1"), ("b", b"2")], [("b", b"3"), ("a", b"4")]
    members = [Member(broker, str(i), protocols=p) for i, p in enumerate((ab, ba, ba))]
    for member in members:
        member.join()
    broker.pass_ms(4 * DELAY_MS)
    leader = next(member for member in members if member.leads)
    assert leader.joined.protocol_name == "b"
    assert sorted(m.metadata for m in leader.joined.members) == [b"2", b"3", b"3"]


def test_only_protocols_that_all_know_are_candidates(broker: Broker) -> None:
    members = [
        Member(broker, "1", protocols=[("a", b""), ("b", b"")]),
        Member(broker, "2", protocols=[("a", b""), ("b", b"")]),
        Member(broker, "3", protocols=[("b", b"")]),
    ]
    for member in members:
        member.join()
    broker.pass_ms(4 * DELAY_MS)
    assert members[0].joined.protocol_name == "b"
    stranger = Member(broker, "4", protocols=[("a", b"")])
    assert stranger.join().joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_another_protocol_type_is_refused_until_the_group_is_empty(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    worker = Member(broker, protocol_type="connect")
    assert worker.join().joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.leave()
    worker.join()
    broker.pass_ms(DELAY_MS)
    assert worker.joined.protocol_type == "connect"


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": []}])
def test_a_member_needs_a_protocol(broker: Broker, fields: dict[str, Any]) -> None:
    member = Member(broker, **fields)
    assert member.join().joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_ms", [-1, 0, 5999, 1_800_001, 2**31 - 1])
def test_session_timeouts_have_bounds(broker: Broker, session_ms: int) -> None:
    member = Member(broker, session_ms=session_ms)
    assert member.join().joined.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("rebalance_ms", [-(2**31), -1, 0])
def test_who_takes_no_time_to_rejoin_is_out_when_others_join(
    broker: Broker, rebalance_ms: int
) -> None:
    hasty = Member(broker, "a", rebalance_ms=rebalance_ms).join()
    broker.pass_ms(DELAY_MS)
    assert hasty.joined.generation_id == 1
    assert hasty.sync({}).of(SyncGroupResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stable_group(broker, Member(broker, "b"))


@pytest.mark.parametrize("rebalance_ms", [-(2**31), 0])
def test_a_silent_static_member_without_time_to_rejoin_does_not_keep_the_broker_busy(
    broker: Broker, rebalance_ms: int
) -> None:
    static = Member(broker, "a", instance_id="i")
    stable_group(broker, static)
    static.rebalance_ms = rebalance_ms
    static.join()
    static.sync({})
    dynamic = Member(broker, "b", rebalance_ms=rebalance_ms).join()
    dynamic.client.hang_up()
    broker.pass_ms(SESSION_MS * 2)
    assert broker.group().state_name == "Empty"


def test_the_longest_rebalance_timeout_is_as_good_as_none(broker: Broker) -> None:
    first = Member(broker, "a", rebalance_ms=2**31 - 1)
    stable_group(broker, first)
    second = Member(broker, "b", rebalance_ms=2**31 - 1).join()
    broker.pass_ms(SESSION_MS + 1)  # what is over is the session of the first
    assert second.joined.generation_id == 2


def test_an_empty_group_id_is_refused(broker: Broker) -> None:
    member = Member(broker, group_id="")
    assert member.join().joined.error_code == ErrorCode.INVALID_GROUP_ID


def test_an_invented_member_id_is_refused(broker: Broker) -> None:
    stranger = Member(broker)
    stranger.member_id = "me"
    assert stranger.join().joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stable_group(broker, Member(broker))
    assert stranger.join().joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_group_size_is_limited() -> None:
    broker = Broker(group_max_size="2")
    first, second, third = (Member(broker, name) for name in "abc")
    stable_group(broker, first, second)
    assert third.join().joined.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    first.leave()
    third.join()
    second.join()
    assert sync_all([second, third])


def test_a_smaller_limit_makes_the_last_to_join_leave() -> None:
    broker = Broker()
    members = [Member(broker, name) for name in "abc"]
    stable_group(broker, *members)
    broker.settings["group.max.size"] = "2"
    broker.crash_and_restart()
    for member in members:
        member.client = broker.connect(member.name)
        assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    for member in members:
        member.join()
    assert members[2].joined.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {m.joined.error_code for m in members[:2]} == {ErrorCode.NONE}


def test_a_join_with_unchanged_metadata_repeats_the_answer(broker: Broker) -> None:
    leader, follower = Member(broker, "a"), Member(broker, "b")
    leader.join()
    follower.join()
    broker.pass_ms(2 * DELAY_MS)
    assert leader.leads
    again = leader.join().joined
    assert again.generation_id == 1
    assert len(again.members) == 2
    assert follower.join().joined.generation_id == 1
    sync_all([leader, follower])
    assert follower.join().joined.generation_id == 1  # stable, and still nothing new
    assert follower.heartbeat() == ErrorCode.NONE


def test_a_join_with_new_metadata_rebalances(broker: Broker) -> None:
    leader, follower = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, leader, follower)
    follower.protocols = [("range", subscription(TOPIC, "more"))]
    follower.join()
    assert follower.is_parked
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_leader_may_always_ask_for_a_rebalance(broker: Broker) -> None:
    leader, follower = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, leader, follower)
    leader.join()
    assert leader.is_parked
    follower.join()
    assert leader.joined.generation_id == 2


def test_a_rebalance_while_members_wait_for_the_assignment(broker: Broker) -> None:
    leader, follower, third = (Member(broker, name) for name in "abc")
    leader.join()
    follower.join()
    broker.pass_ms(2 * DELAY_MS)
    assert not follower.leads
    follower.sync()
    third.join()
    assert follower.synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    leader.joined  # noqa: B018
    assert leader.sync({}).of(SyncGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_when_the_leader_misses_the_join_another_leads(broker: Broker) -> None:
    leader = Member(broker, "a", session_ms=REBALANCE_MS * 2)
    follower, third = Member(broker, "b", session_ms=REBALANCE_MS * 2), Member(broker, "c")
    stable_group(broker, leader, follower)
    third.join()
    follower.join()
    broker.pass_ms(REBALANCE_MS)
    assert follower.leads
    assert len(follower.joined.members) == 2


def test_a_join_from_another_connection_takes_the_place_of_the_parked_one(broker: Broker) -> None:
    first, second = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, first, second)
    first.join()
    parked = first.joining
    first.client = broker.connect("a")
    first.join()
    assert parked is not None
    assert parked.of(JoinGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    second.join()
    assert first.joined.generation_id == 2


def test_sync_is_fenced(broker: Broker) -> None:
    leader, follower = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, leader, follower)
    wrong: dict[str, tuple[Any, ErrorCode]] = {
        "generation_id": (follower.generation_id - 1, ErrorCode.ILLEGAL_GENERATION),
        "member_id": ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        "group_id": ("other", ErrorCode.UNKNOWN_MEMBER_ID),
        "protocol_name": ("roundrobin", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        "protocol_type": ("connect", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        "group_instance_id": ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
    }
    for name, (value, code) in wrong.items():
        assert follower.sync(**{name: value}).of(SyncGroupResponse).error_code == code
    assert follower.sync(protocol_name=None).of(SyncGroupResponse).error_code == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )


def test_an_assignment_too_large_for_a_record_is_refused_and_the_group_lives_on(
    broker: Broker,
) -> None:
    leader, follower = Member(broker, "a"), Member(broker, "b")
    leader.join()
    follower.join()
    broker.pass_ms(2 * DELAY_MS)
    assert leader.leads
    follower.joined  # noqa: B018
    follower.sync()
    leader.sync({follower.member_id: bytes(2_000_000)})
    assert follower.synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert leader.synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    leader.join()
    follower.join()
    sync_all([leader, follower])
    assert leader.joined.generation_id == 2


def test_joining_is_refused_where_there_is_no_coordinator() -> None:
    broker = Broker(offsets_topic_num_partitions="3")
    member = Member(broker)
    del (
        broker.node.groups.runtimes[0],
        broker.node.groups.runtimes[1],
        broker.node.groups.runtimes[2],
    )
    assert member.join().joined.error_code == ErrorCode.NOT_COORDINATOR
    assert GROUP not in broker.node.image.topics
