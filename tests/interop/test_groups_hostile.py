"""Requests about groups that no honest client sends: each is answered, and harms nobody else."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.harness.classic import ClassicMember, commit, committed
from tests.harness.consumer_protocol import NewMember
from tests.harness.deadline import eventually
from tests.harness.raw import API_KEYS, ConnectionClosed, RawConnection
from tests.harness.topics import create_topic, topic_id_of

NONE = 0
UNKNOWN_SERVER_ERROR = -1
UNKNOWN_TOPIC_OR_PARTITION = 3
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
INVALID_REQUEST = 42
MEMBER_ID_REQUIRED = 79
FENCED_MEMBER_EPOCH = 110
INT32 = 2**31 - 1
INT64 = 2**63 - 1

MakeTopic = Callable[[int], str]


@pytest.fixture(autouse=True)
def bystander(group_servers: str) -> Iterator[ClassicMember]:
    """Yield a member of another group, which must not notice anything of what goes on."""
    with RawConnection(group_servers) as raw:
        member = ClassicMember(raw, f"g-{uuid.uuid4().hex[:12]}", session_timeout_ms=60_000)
        member.stable()
        yield member
        assert member.heartbeat() == NONE
        assert member.leave() == NONE


@pytest.mark.parametrize("timeout_ms", [INT32, 0, -1, -INT32 - 1])
def test_absurd_rebalance_timeouts(
    group_raw: RawConnection, group_id: str, timeout_ms: int
) -> None:
    member = ClassicMember(group_raw, group_id, rebalance_timeout_ms=timeout_ms)
    assert member.join().error_code == NONE
    # With no time at all to sync, the member may be gone before it does.
    code = member.sync({member.member_id: b""}).error_code
    assert code == NONE or (timeout_ms <= 0 and code == UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("timeout_ms", [INT32, -INT32 - 1])
def test_absurd_session_timeouts(group_raw: RawConnection, group_id: str, timeout_ms: int) -> None:
    member = ClassicMember(group_raw, group_id, session_timeout_ms=timeout_ms)
    assert member.join().error_code == INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("name", ["x" * 32_000, "a\x00b\n☃ /../", " "])
def test_odd_names_of_groups(
    group_raw: RawConnection, make_group_topic: MakeTopic, name: str
) -> None:
    member = ClassicMember(group_raw, name)
    member.stable()
    assert member.leave() == NONE
    key = (make_group_topic(1), 0)
    assert commit(group_raw, name, {key: 4}) == {key: NONE}
    assert committed(group_raw, name) == {key: 4}
    assert [r.error_code for r in delete(group_raw, name)] == [NONE]


def test_metadata_larger_than_a_record_may_be(group_raw: RawConnection, group_id: str) -> None:
    member = ClassicMember(group_raw, group_id)
    assert member.join().error_code == NONE
    assert member.sync({member.member_id: bytes(2_000_000)}).error_code == UNKNOWN_SERVER_ERROR
    # The group is not lost by that: it rebalances.
    assert member.heartbeat() in (REBALANCE_IN_PROGRESS, NONE)
    assert member.join().error_code == NONE
    assert member.sync({member.member_id: bytes(500_000)}).error_code == NONE
    assert member.heartbeat() == NONE


def test_very_many_protocols_and_assignments(group_raw: RawConnection, group_id: str) -> None:
    member = ClassicMember(
        group_raw, group_id, protocols=[(f"p{number}", b"") for number in range(1000)]
    )
    assert member.join().error_code == NONE
    strangers = {f"stranger-{number}": b"x" for number in range(1000)}
    assert member.sync({member.member_id: b"mine", **strangers}).assignment == b"mine"


@pytest.mark.parametrize(
    ("generation", "member_id", "code"),
    [
        (-INT32 - 1, "", NONE),
        (-2, "", NONE),
        (0, "", ILLEGAL_GENERATION),
        (INT32, "", ILLEGAL_GENERATION),
        (-1, "whoever", NONE),
    ],
)
def test_commits_of_nobody(
    group_raw: RawConnection,
    group_id: str,
    make_group_topic: MakeTopic,
    generation: int,
    member_id: str,
    code: int,
) -> None:
    key = (make_group_topic(1), 0)
    codes = commit(group_raw, group_id, {key: 1}, generation=generation, member_id=member_id)
    assert codes == {key: code}


@pytest.mark.parametrize("offset", [-1, -2, -INT64 - 1, INT64])
def test_offsets_are_kept_whatever_they_are(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic, offset: int
) -> None:
    key = (make_group_topic(1), 0)
    assert commit(group_raw, group_id, {key: offset}, leader_epoch=-5) == {key: NONE}
    assert committed(group_raw, group_id, key) == {key: offset}


def test_partitions_that_cannot_be(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(1)
    keys = [(topic, -1), (topic, INT32), ("", 0), ("a\x00/..", 0)]
    expected = dict.fromkeys(keys, UNKNOWN_TOPIC_OR_PARTITION)
    assert commit(group_raw, group_id, dict.fromkeys(keys, 1)) == expected
    many = commit(group_raw, group_id, {(topic, number): 1 for number in range(20_000)})
    assert [number for (_, number), code in many.items() if code == NONE] == [0]


def test_very_many_groups_asked_at_once(group_raw: RawConnection, group_id: str) -> None:
    names = [f"{group_id}-{number}" for number in range(20_000)]
    answer = group_raw.request("offset_fetch", 8, groups=[{"group_id": name} for name in names])
    assert [found.group_id for found in answer.groups] == names
    found = group_raw.request("describe_groups", 5, groups=names[:1000]).groups
    assert {each.group_state for each in found} == {"Dead"}
    listed = {each.group_id for each in group_raw.request("list_groups", 4).groups}
    assert listed.isdisjoint(names)


@pytest.mark.slow
def test_ids_that_are_asked_for_and_never_used(group_raw: RawConnection, group_id: str) -> None:
    for _ in range(2000):
        shy = ClassicMember(group_raw, group_id, session_timeout_ms=1000)
        assert shy.receive_join(shy.send_join()).error_code == MEMBER_ID_REQUIRED
    member = ClassicMember(group_raw, group_id)
    eventually(lambda: member.join().error_code == NONE, "there is room again")


def test_members_that_are_gone_before_their_answer(
    group_servers: str, group_raw: RawConnection, group_id: str
) -> None:
    first = ClassicMember(group_raw, group_id, rebalance_timeout_ms=1000)
    first.stable()
    for _ in range(4):
        with RawConnection(group_servers) as raw:
            hasty = ClassicMember(raw, group_id, session_timeout_ms=1000)
            hasty.receive_join(hasty.send_join())
            hasty.send_join()
    # The group settles again, with those who are there.
    eventually(lambda: first.join().error_code == NONE, "it joins", 10.0)
    eventually(lambda: settled(first), "it is alone again", 10.0)


def settled(member: ClassicMember) -> bool:
    if member.heartbeat() == NONE:
        return True
    member.join()
    return bool(member.sync({member.member_id: b""}).error_code == NONE)


@pytest.mark.parametrize(
    "changes",
    [
        {"subscribed_topic_names": [f"none-{number}" for number in range(5000)]},
        {"subscribed_topic_names": ["x" * 30_000]},
        {"subscribed_topic_names": ["a\x00/..", ""]},
        {"rebalance_timeout": INT32},
        {"rebalance_timeout": 0},
        {"instance_id": "x" * 30_000},
        {"member_id": "x" * 30_000},
    ],
)
def test_odd_members_of_the_new_protocol_are_let_in(
    group_raw: RawConnection, group_id: str, changes: dict[str, object]
) -> None:
    member = NewMember(group_raw, group_id, ["nowhere"])
    assert member.beat(**changes).error_code == NONE


@pytest.mark.parametrize("regex", ["(a+)+$" * 50, "(a|aa)*" * 100 + "b", "(x{0,50}){0,50}y"])
def test_patterns_made_to_take_long(
    group_raw: RawConnection, group_servers: str, group_id: str, regex: str
) -> None:
    create_topic(group_servers, f"{'a' * 60}-{group_id}", 1)
    member = NewMember(group_raw, group_id, [], regex=regex)
    first = member.beat().error_code
    assert first in (NONE, 128)
    again = (128,) if first == 128 else (NONE, UNKNOWN_MEMBER_ID, 69)
    assert member.beat().error_code in again


def test_a_member_cannot_claim_what_it_was_not_given(
    group_raw: RawConnection, group_id: str, make_group_topic: MakeTopic
) -> None:
    topic = make_group_topic(2)
    honest = NewMember(group_raw, group_id, [topic])
    honest.beat()
    honest.settle(2)
    thief = NewMember(group_raw, group_id, ["nowhere"])
    assert thief.beat().error_code == NONE
    everything = [
        {"topic_id": topic_id_of(group_raw, topic), "partitions": [0, 1, 1, -1, INT32]},
        {"topic_id": uuid.uuid4(), "partitions": [0]},
    ]
    assert thief.beat(topic_partitions=everything).error_code == NONE
    assert thief.owned == {}
    assert honest.beat().error_code == NONE
    assert honest.owned == {topic_id_of(group_raw, topic): [0, 1]}
    assert thief.beat(topic_partitions=everything, member_epoch=0).error_code == INVALID_REQUEST
    assert thief.beat(member_epoch=INT32).error_code == FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("api", "version"),
    [
        ("join_group", 9),
        ("sync_group", 5),
        ("offset_commit", 9),
        ("offset_fetch", 9),
        ("leave_group", 5),
        ("consumer_group_heartbeat", 0),
        ("list_groups", 5),
        ("offset_delete", 0),
    ],
)
def test_lengths_that_lie_close_the_connection(group_servers: str, api: str, version: int) -> None:
    flexible = api != "offset_delete"
    header = API_KEYS[api].to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4)
    header += (3).to_bytes(2, "big") + b"raw" + (b"\x00" if flexible else b"")
    lie = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff"
    with RawConnection(group_servers) as raw:
        raw.send_frame(header + lie + b"abc")
        with pytest.raises(ConnectionClosed):
            raw.receive_frame()


def delete(raw: RawConnection, group: str):  # type: ignore[no-untyped-def]
    return raw.request("delete_groups", 2, groups_names=[group]).results
