"""The classic protocol request by request: who is let in, who is fenced, and with which code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.classic import ClassicMember, commit, subscription
from tests.harness.deadline import eventually
from tests.harness.group_broker import (
    MAX_GROUP_SIZE,
    MAX_SESSION_TIMEOUT_MS,
    MIN_SESSION_TIMEOUT_MS,
)
from tests.harness.raw import Answer, RawConnection

NONE = 0
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82

Connect = Callable[[], RawConnection]


@pytest.fixture
def connect(group_servers: str, request: pytest.FixtureRequest) -> Connect:
    """Return a function that connects to the coordinator, as each member does for itself."""

    def open_one() -> RawConnection:
        connection = RawConnection(group_servers)
        request.addfinalizer(connection.close)
        return connection

    return open_one


def test_a_first_join_is_told_its_id_and_a_second_lets_it_in(
    group_raw: RawConnection, group_id: str
) -> None:
    member = ClassicMember(group_raw, group_id)
    answer = member.receive_join(member.send_join())
    assert answer.error_code == MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("raw-")
    answer = member.receive_join(member.send_join())
    assert (answer.error_code, answer.generation_id) == (NONE, 1)
    assert answer.leader == answer.member_id == member.member_id
    assert [m.member_id for m in answer.members] == [member.member_id]
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_leads_to_a_stable_group(
    group_raw: RawConnection, group_id: str, version: int
) -> None:
    member = ClassicMember(group_raw, group_id)
    answer = member.join(version)
    assert (answer.error_code, answer.generation_id) == (NONE, 1)
    for sync_version in range(6):
        answer = member.sync({member.member_id: b"mine"}, sync_version)
        assert (answer.error_code, answer.assignment) == (NONE, b"mine")
    assert member.heartbeat() == NONE
    assert member.leave() == NONE
    assert member.heartbeat() == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (MIN_SESSION_TIMEOUT_MS - 1, INVALID_SESSION_TIMEOUT),
        (MAX_SESSION_TIMEOUT_MS + 1, INVALID_SESSION_TIMEOUT),
        (0, INVALID_SESSION_TIMEOUT),
        (-1, INVALID_SESSION_TIMEOUT),
        (MIN_SESSION_TIMEOUT_MS, NONE),
        (MAX_SESSION_TIMEOUT_MS, NONE),
    ],
)
def test_session_timeouts_have_bounds(
    group_raw: RawConnection, group_id: str, timeout_ms: int, code: int
) -> None:
    member = ClassicMember(group_raw, group_id, session_timeout_ms=timeout_ms)
    assert member.join().error_code == code
    assert member.leave() == (NONE if code == NONE else UNKNOWN_MEMBER_ID)


def test_a_group_without_a_name_has_no_members(group_raw: RawConnection) -> None:
    assert ClassicMember(group_raw, "").join().error_code == INVALID_GROUP_ID


def test_a_join_without_protocols_is_refused(group_raw: RawConnection, group_id: str) -> None:
    empty = ClassicMember(group_raw, group_id, protocols=())
    assert empty.join().error_code == INCONSISTENT_GROUP_PROTOCOL
    untyped = ClassicMember(group_raw, group_id, protocol_type="")
    assert untyped.join().error_code == INCONSISTENT_GROUP_PROTOCOL


def test_members_have_one_protocol_in_common(connect: Connect, group_id: str) -> None:
    ClassicMember(connect(), group_id).stable()
    other = ClassicMember(connect(), group_id, protocols=(("sticky", b""),))
    assert other.join().error_code == INCONSISTENT_GROUP_PROTOCOL
    typed = ClassicMember(connect(), group_id, protocol_type="connect")
    assert typed.join().error_code == INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_with_most_votes_wins(connect: Connect, group_id: str) -> None:
    wishes = [("range", "sticky"), ("sticky", "range"), ("sticky", "range")]
    members = [
        ClassicMember(connect(), group_id, protocols=[(name, b"") for name in wish])
        for wish in wishes
    ]
    answers = join_together(members)
    assert {answer.protocol_name for answer in answers} == {"sticky"}
    assert len({answer.generation_id for answer in answers}) == 1
    assert sorted(len(answer.members) for answer in answers) == [0, 0, 3]


def test_the_leader_alone_sees_all_and_its_assignments_reach_all(
    connect: Connect, group_id: str
) -> None:
    members = [ClassicMember(connect(), group_id) for _ in range(3)]
    answers = join_together(members)
    (leader,) = [m for m, a in zip(members, answers, strict=True) if a.leader == m.member_id]
    followers = [member for member in members if member is not leader]
    waiting = [
        member.raw.send(
            "sync_group",
            3,
            group_id=group_id,
            generation_id=member.generation,
            member_id=member.member_id,
        )
        for member in followers
    ]
    given = {member.member_id: member.member_id.encode() for member in members}
    assert leader.sync(given).assignment == leader.member_id.encode()
    for member, correlation_id in zip(followers, waiting, strict=True):
        answer = member.raw.receive("sync_group", 3, correlation_id)
        assert (answer.error_code, answer.assignment) == (NONE, member.member_id.encode())


def test_strangers_and_the_past_are_fenced(group_raw: RawConnection, group_id: str) -> None:
    member = ClassicMember(group_raw, group_id)
    member.stable()
    assert member.heartbeat() == NONE
    assert member.heartbeat(generation_id=member.generation + 1) == ILLEGAL_GENERATION
    assert member.heartbeat(generation_id=member.generation - 1) == ILLEGAL_GENERATION
    assert member.heartbeat(member_id="somebody") == UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_id=f"{group_id}-other") == UNKNOWN_MEMBER_ID
    stranger = ClassicMember(group_raw, group_id, member_id="somebody")
    assert stranger.join().error_code == UNKNOWN_MEMBER_ID
    late = ClassicMember(group_raw, group_id, member.member_id, member.generation - 1)
    assert late.sync().error_code == ILLEGAL_GENERATION
    assert ClassicMember(group_raw, group_id, "somebody", 1).sync().error_code == UNKNOWN_MEMBER_ID
    assert ClassicMember(group_raw, group_id, "somebody", 1).leave() == UNKNOWN_MEMBER_ID


def test_a_rebalance_is_told_by_heartbeat_and_ends_without_who_does_not_join(
    connect: Connect, group_id: str
) -> None:
    slow = ClassicMember(connect(), group_id, rebalance_timeout_ms=2000)
    slow.stable()
    new = ClassicMember(connect(), group_id, rebalance_timeout_ms=2000)
    assert new.receive_join(new.send_join()).error_code == MEMBER_ID_REQUIRED
    waiting = new.send_join()
    eventually(lambda: slow.heartbeat() == REBALANCE_IN_PROGRESS, "the rebalance is told")
    answer = new.receive_join(waiting)
    assert (answer.error_code, answer.generation_id) == (NONE, 2)
    assert [m.member_id for m in answer.members] == [new.member_id]
    assert slow.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_member_that_falls_silent_is_removed_after_its_session(
    connect: Connect, group_id: str
) -> None:
    silent = ClassicMember(connect(), group_id, session_timeout_ms=1000)
    silent.stable()
    watcher = connect()
    eventually(
        lambda: (
            watcher.request("describe_groups", 5, groups=[group_id]).groups[0].group_state
            == "Empty"
        ),
        "the group is empty",
    )
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID


def test_an_id_that_is_given_and_not_used_is_forgotten(connect: Connect, group_id: str) -> None:
    shy = ClassicMember(connect(), group_id, session_timeout_ms=1000)
    assert shy.receive_join(shy.send_join()).error_code == MEMBER_ID_REQUIRED
    other = ClassicMember(connect(), group_id)
    waiting = other.join()
    # It does not hold up those who join, and its id is worth nothing later on.
    assert (waiting.error_code, len(waiting.members)) == (NONE, 1)
    assert other.sync({other.member_id: b""}).error_code == NONE

    def forgotten() -> bool:
        assert other.heartbeat() == NONE
        late = ClassicMember(shy.raw, group_id, shy.member_id, 1)
        return bool(late.sync().error_code == UNKNOWN_MEMBER_ID)

    eventually(forgotten, "the id is forgotten")


def test_a_group_is_full_at_its_limit(connect: Connect, group_id: str) -> None:
    members = [ClassicMember(connect(), group_id) for _ in range(MAX_GROUP_SIZE)]
    answers = join_together(members)
    assert [answer.error_code for answer in answers] == [NONE] * MAX_GROUP_SIZE
    late = ClassicMember(connect(), group_id)
    assert late.join().error_code == GROUP_MAX_SIZE_REACHED
    # Who is in may still join again.
    assert members[0].heartbeat() in (NONE, REBALANCE_IN_PROGRESS)


def test_several_members_leave_in_one_request(connect: Connect, group_id: str) -> None:
    members = [ClassicMember(connect(), group_id) for _ in range(3)]
    join_together(members)
    answer = members[0].raw.request(
        "leave_group",
        4,
        group_id=group_id,
        members=[
            {"member_id": members[0].member_id, "group_instance_id": None},
            {"member_id": "nobody", "group_instance_id": None},
            {"member_id": members[1].member_id, "group_instance_id": None},
        ],
    )
    assert answer.error_code == NONE
    assert [m.error_code for m in answer.members] == [NONE, UNKNOWN_MEMBER_ID, NONE]
    assert members[0].heartbeat() == UNKNOWN_MEMBER_ID
    assert members[2].heartbeat() == REBALANCE_IN_PROGRESS


def test_a_static_member_comes_back_under_its_name(connect: Connect, group_id: str) -> None:
    first = ClassicMember(connect(), group_id, instance_id="one")
    first.stable(b"kept")
    again = ClassicMember(connect(), group_id, instance_id="one")
    answer = again.join()
    assert (answer.error_code, answer.generation_id) == (NONE, first.generation)
    assert again.member_id != first.member_id
    assert again.sync().assignment == b"kept"
    assert first.heartbeat() == FENCED_INSTANCE_ID
    assert first.sync().error_code == FENCED_INSTANCE_ID
    assert first.leave() == FENCED_INSTANCE_ID
    assert again.heartbeat() == NONE
    assert again.heartbeat(group_instance_id="two") == UNKNOWN_MEMBER_ID


def test_commits_of_the_past_and_of_strangers_are_refused(
    connect: Connect, group_id: str, make_group_topic: Callable[[int], str]
) -> None:
    topic = make_group_topic(1)
    key = (topic, 0)
    member = ClassicMember(connect(), group_id, protocols=(("range", subscription(topic)),))
    member.stable()
    raw = member.raw

    def code(generation: int, member_id: str) -> int:
        return commit(raw, group_id, {key: 1}, generation=generation, member_id=member_id)[key]

    assert code(member.generation, member.member_id) == NONE
    assert code(member.generation - 1, member.member_id) == ILLEGAL_GENERATION
    assert code(member.generation + 1, member.member_id) == ILLEGAL_GENERATION
    assert code(member.generation, "somebody") == UNKNOWN_MEMBER_ID
    # Who is not a member may not commit while there are members.
    assert code(-1, "") == UNKNOWN_MEMBER_ID


def join_together(members: list[ClassicMember]) -> list[Answer]:
    """Let all join one generation: those with an id are waited for, the first joins again."""
    for member in members:
        assert member.receive_join(member.send_join()).error_code == MEMBER_ID_REQUIRED
    members[0].join()
    waiting = [member.send_join() for member in members[1:]]
    eventually(lambda: members[0].heartbeat() == REBALANCE_IN_PROGRESS, "the others are heard")
    first = members[0].send_join()
    answers = [members[0].receive_join(first)]
    answers += [m.receive_join(w) for m, w in zip(members[1:], waiting, strict=True)]
    return answers
