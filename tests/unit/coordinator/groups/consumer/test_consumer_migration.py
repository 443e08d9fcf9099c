"""Groups between the protocols: members of both, and the way from one to the other and back."""

from __future__ import annotations

import pytest

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer import consumer_protocol
from ottla.model.errors import ErrorCode
from ottla.wire.codec import encoder
from ottla.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.primitives import DecodeError
from tests.support.consumer_groups import (
    GROUP,
    PARTITIONS,
    TOPIC,
    Broker,
    Consumer,
    consumer_group,
    describe,
    settle,
    snapshot,
)
from tests.support.groups import DELAY_MS, Member, stable_group
from tests.support.old_consumer import OldConsumer

EVERYTHING = list(range(PARTITIONS))


def assignment_of(*partitions: int) -> bytes:
    topics = [TopicPartition(topic=TOPIC, partitions=list(partitions))] if partitions else []
    return b"\0\0" + encoder(ConsumerProtocolAssignment, 0)(
        ConsumerProtocolAssignment(assigned_partitions=topics)
    )


def old_group(broker: Broker, *members: OldConsumer) -> None:
    """Make a stable classic group in which the members share the partitions."""
    shares = {m.name: EVERYTHING[i :: len(members)] for i, m in enumerate(members)}
    stable_group(broker, *members, assignments=lambda m: assignment_of(*shares[m.name]))
    for member in members:
        member.owned = shares[member.name]


def all_beat(broker: Broker, *members: OldConsumer | Consumer, rounds: int = 8) -> None:
    for _ in range(rounds):
        for member in members:
            if isinstance(member, OldConsumer):
                assert member.beat() is ErrorCode.NONE
            else:
                assert member.poll() is ErrorCode.NONE
        broker.pass_ms(1_000)


def shares(*members: OldConsumer | Consumer) -> list[list[int]]:
    return [m.owned if isinstance(m, OldConsumer) else m.has() for m in members]


def together(*members: OldConsumer | Consumer) -> list[int]:
    return sorted(partition for share in shares(*members) for partition in share)


# -- from the classic protocol to the new one --------------------------------------------


def test_a_classic_group_is_taken_over_with_what_everybody_has(broker: Broker) -> None:
    old = OldConsumer(broker, "old")
    old_group(broker, old)
    new = Consumer(broker, "new")
    assert new.heartbeat() is ErrorCode.NONE
    group = consumer_group(broker)
    assert group.members[old.member_id].current.epoch == old.generation_id == 1
    assert group.epoch == 2
    assert new.target == set()
    all_beat(broker, old, new)
    assert together(old, new) == EVERYTHING
    assert [len(share) for share in shares(old, new)] == [4, 4]
    types = {member.member_id: member.member_type for member in describe(broker).members}
    assert types == {old.member_id: 0, "new": 1}


def test_the_last_classic_member_goes_and_the_rest_stays(broker: Broker) -> None:
    first, second = OldConsumer(broker, "1"), OldConsumer(broker, "2")
    old_group(broker, first, second)
    new = Consumer(broker, "new")
    new.heartbeat()
    all_beat(broker, first, second, new)
    assert first.leave() is ErrorCode.NONE
    all_beat(broker, second, new)
    assert second.leave() is ErrorCode.NONE
    settle(broker, new)
    assert new.has() == EVERYTHING
    assert consumer_group(broker).member_counts.classic == 0


def test_members_that_wait_are_asked_to_join_again(broker: Broker) -> None:
    first, second = OldConsumer(broker, "1"), OldConsumer(broker, "2")
    old_group(broker, first)
    second.say()
    second.join()
    assert second.is_parked
    new = Consumer(broker, "new")
    new.heartbeat()
    assert second.joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.take_part() is ErrorCode.NONE
    all_beat(broker, first, second, new)
    assert together(first, second, new) == EVERYTHING


def test_a_group_before_its_first_generation_is_taken_over(broker: Broker) -> None:
    old = OldConsumer(broker, "old")
    old.join()
    new = Consumer(broker, "new")
    assert new.heartbeat() is ErrorCode.NONE
    assert old.joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.take_part() is ErrorCode.NONE
    all_beat(broker, old, new)
    assert together(old, new) == EVERYTHING


def test_what_two_were_assigned_goes_to_one(broker: Broker) -> None:
    """The assignment of a classic group is a client's; it may be wrong."""
    first, second = OldConsumer(broker, "1"), OldConsumer(broker, "2")
    stable_group(broker, first, second, assignments=lambda _: assignment_of(*EVERYTHING))
    Consumer(broker, "new").heartbeat()
    group = consumer_group(broker)
    counts = [
        len(m.current.assigned.get(t, ()))
        for m in group.members.values()
        for t in m.current.assigned
    ]
    assert counts == [PARTITIONS]


@pytest.mark.parametrize(
    ("settings", "protocol_type", "metadata"),
    [
        ({"group_consumer_migration_policy": "disabled"}, "consumer", None),
        ({"group_consumer_migration_policy": "downgrade"}, "consumer", None),
        ({"group_consumer_max_size": "1"}, "consumer", None),
        ({}, "connect", None),
        ({}, "consumer", b"nonsense"),
        ({}, "consumer", b""),
    ],
)
def test_groups_that_stay_classic(
    settings: dict[str, str], protocol_type: str, metadata: bytes | None
) -> None:
    broker = Broker(**settings)
    members = [OldConsumer(broker, name, protocol_type=protocol_type) for name in "ab"]
    if metadata is not None:
        for member in members:
            member.protocols = [("range", metadata)]
    stable_group(broker, *members)
    assert Consumer(broker, "new").heartbeat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(broker.shard().groups[GROUP], ClassicGroup)
    assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 2


@pytest.mark.parametrize(("protocol", "stays"), [("mine", True), ("cooperative-sticky", False)])
def test_what_a_custom_assignor_tells_the_members_must_not_be_lost(
    broker: Broker, protocol: str, stays: bool
) -> None:
    old = OldConsumer(broker, "old")
    old.protocols = [(protocol, old.protocols[0][1])]
    told = ConsumerProtocolAssignment(user_data=b"for you alone")
    stable_group(
        broker, old, assignments=lambda _: b"\0\0" + encoder(ConsumerProtocolAssignment, 0)(told)
    )
    code = ErrorCode.GROUP_ID_NOT_FOUND if stays else ErrorCode.NONE
    assert Consumer(broker, "new").heartbeat() is code


def test_an_empty_classic_group_is_replaced(broker: Broker) -> None:
    old = OldConsumer(broker, "old")
    old_group(broker, old)
    old.leave()
    new = Consumer(broker, "new")
    settle(broker, new)
    assert new.has() == EVERYTHING
    broker.crash_and_restart()
    assert set(consumer_group(broker).members) == {"new"}


def test_a_group_of_both_survives_a_restart_of_the_coordinator(broker: Broker) -> None:
    old, new = OldConsumer(broker, "old"), Consumer(broker, "new")
    old_group(broker, old)
    new.heartbeat()
    all_beat(broker, old, new)
    before = snapshot(consumer_group(broker))
    broker.crash_and_restart()
    assert snapshot(consumer_group(broker)) == before
    old.client, new.client = broker.connect(), broker.connect("new")
    all_beat(broker, old, new, rounds=1)
    old.client = broker.connect()
    broker.pass_ms(11_000)
    assert set(consumer_group(broker).members) == {"new"}  # its session is that of its join


# -- classic members in a group of the consumer protocol --------------------------------------


def test_a_classic_member_joins_a_group_of_the_new_protocol(broker: Broker) -> None:
    new = Consumer(broker, "new")
    settle(broker, new)
    old = OldConsumer(broker, "old")
    assert old.send_join().of(JoinGroupResponse).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert old.take_part() is ErrorCode.NONE
    all_beat(broker, new, old)
    assert [len(share) for share in shares(old, new)] == [4, 4]
    assert old.commit(3, old.owned[0]) is ErrorCode.NONE
    assert old.commit(3, generation_id_or_member_epoch=99) is ErrorCode.ILLEGAL_GENERATION


def test_an_eager_member_gives_everything_up_before_it_joins(broker: Broker) -> None:
    new = Consumer(broker, "new")
    settle(broker, new)
    eager = OldConsumer(broker, "eager", version=0)
    assert eager.take_part() is ErrorCode.NONE
    for _ in range(6):
        new.poll()
        code = eager.heartbeat()
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            eager.owned = []
            assert eager.take_part() is ErrorCode.NONE
        broker.pass_ms(1_000)
    assert [len(share) for share in shares(eager, new)] == [4, 4]


def test_old_versions_of_join_need_no_member_id_first(broker: Broker) -> None:
    settle(broker, Consumer(broker, "new"))
    old = OldConsumer(broker, "old", join_version=3)
    old.say()
    response = old.send_join().of(JoinGroupResponse)
    assert response.error_code == ErrorCode.NONE
    assert response.member_id in consumer_group(broker).members


def test_members_with_other_protocols_are_refused(broker: Broker) -> None:
    settle(broker, Consumer(broker, "new"))
    connect = OldConsumer(broker, "c", protocol_type="connect")
    connect.say()
    assert connect.send_join().of(JoinGroupResponse).error_code == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    old = OldConsumer(broker, "old")
    assert old.take_part() is ErrorCode.NONE
    other = OldConsumer(broker, "other")
    other.protocols = [("sticky", old.protocols[0][1])]
    assert other.send_join().of(JoinGroupResponse).error_code == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    other.protocols = [("range", b"?")]
    other.member_id = "x"
    assert other.send_join().of(JoinGroupResponse).error_code == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )


def test_a_classic_member_that_does_not_rejoin_in_time_is_out(broker: Broker) -> None:
    new = Consumer(broker, "new")
    settle(broker, new)
    old = OldConsumer(broker, "old", rebalance_ms=15_000)
    old.take_part()
    all_beat(broker, new, old)
    Consumer(broker, "third").heartbeat()
    for _ in range(3):
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        new.poll()
        broker.pass_ms(5_000)
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_was_out_must_not_come_back_with_what_it_had(broker: Broker) -> None:
    new = Consumer(broker, "new")
    settle(broker, new)
    old = OldConsumer(broker, "old")
    old.take_part()
    all_beat(broker, new, old)
    broker.pass_ms(11_000)
    assert old.member_id not in consumer_group(broker).members
    assert old.take_part() is ErrorCode.UNKNOWN_MEMBER_ID
    old.owned = []
    assert old.take_part() is ErrorCode.NONE


def test_a_classic_member_that_does_not_sync_in_time_is_out(broker: Broker) -> None:
    new = Consumer(broker, "new")
    settle(broker, new)
    old = OldConsumer(broker, "old", rebalance_ms=15_000)
    old.say()
    old.join()
    assert old.joined.error_code == ErrorCode.NONE
    for _ in range(3):
        old.heartbeat()
        new.poll()
        broker.pass_ms(5_000)
    assert old.member_id not in consumer_group(broker).members


def test_refusals_of_sync_and_heartbeat(broker: Broker) -> None:
    new = Consumer(broker, "new")
    settle(broker, new)
    old = OldConsumer(broker, "old")
    old.take_part()
    assert old.heartbeat(generation_id=99) is ErrorCode.ILLEGAL_GENERATION
    assert old.heartbeat(member_id="?") is ErrorCode.UNKNOWN_MEMBER_ID
    assert old.heartbeat(member_id="new") is ErrorCode.UNKNOWN_MEMBER_ID
    for changes, code in (
        ({"generation_id": 99}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "new"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        old.sync(**changes)
        assert old.synced.error_code == code
    Consumer(broker, "third").heartbeat()
    old.sync()
    assert old.synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_administrator_removes_a_static_member(broker: Broker) -> None:
    new = Consumer(broker, "new")
    settle(broker, new)
    old = OldConsumer(broker, "old", instance_id="i")
    assert old.take_part() is ErrorCode.NONE
    old.member_id = ""
    assert old.leave() is ErrorCode.NONE
    assert set(consumer_group(broker).members) == {"new"}
    assert old.leave() is ErrorCode.UNKNOWN_MEMBER_ID


def leave(broker: Broker, *members: tuple[str, str | None]) -> list[tuple[str, int]]:
    """Remove members as an administrator does; return the member id and the error of each."""
    request = LeaveGroupRequest(
        group_id=GROUP,
        members=[MemberIdentity(member_id=one, group_instance_id=other) for one, other in members],
    )
    response = broker.connect().ask(request, LeaveGroupResponse)
    assert response.error_code == ErrorCode.NONE
    return [(member.member_id, member.error_code) for member in response.members]


def test_an_administrator_removes_members_of_the_new_protocol(broker: Broker) -> None:
    one, two = Consumer(broker, "one"), Consumer(broker, "two", instance_id="i2")
    three = Consumer(broker, "three", instance_id="i3")
    settle(broker, one, two, three)
    assert leave(broker, ("", "i2")) == [("", ErrorCode.NONE)]
    assert set(consumer_group(broker).members) == {"one", "three"}
    removed = leave(broker, ("one", None), ("three", "i3"), ("gone", None), ("", "unknown"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert removed == [("one", 0), ("three", 0), ("gone", unknown), ("", unknown)]
    assert consumer_group(broker).members == {}
    assert one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_not_removed_under_another_member_id(broker: Broker) -> None:
    settle(broker, Consumer(broker, "one", instance_id="i1"))
    assert leave(broker, ("two", "i1")) == [("two", ErrorCode.FENCED_INSTANCE_ID)]
    assert set(consumer_group(broker).members) == {"one"}


def test_a_member_that_is_named_twice_leaves_once(broker: Broker) -> None:
    one, two = Consumer(broker, "one", instance_id="i1"), Consumer(broker, "two")
    settle(broker, one, two)
    epoch = consumer_group(broker).epoch
    named = leave(broker, ("one", "i1"), ("", "i1"), ("one", None))
    assert named == [("one", 0), ("", 0), ("one", 0)]
    assert set(consumer_group(broker).members) == {"two"}
    assert consumer_group(broker).epoch == epoch + 1


# -- and back ----------------------------------------------------------------------------


def classic_group(broker: Broker) -> ClassicGroup:
    group = broker.shard().groups[GROUP]
    assert isinstance(group, ClassicGroup)
    return group


def mixed_group(broker: Broker, *old: OldConsumer) -> Consumer:
    new = Consumer(broker, "new")
    settle(broker, new)
    for member in old:
        assert member.take_part() is ErrorCode.NONE
        all_beat(broker, new, *old[: old.index(member) + 1])
    return new


def test_when_the_last_new_member_leaves_the_group_is_classic_again(broker: Broker) -> None:
    first, second = OldConsumer(broker, "1"), OldConsumer(broker, "2")
    new = mixed_group(broker, first, second)
    epoch = consumer_group(broker).epoch
    assert new.leave() is ErrorCode.NONE
    broker.pass_ms(1)
    assert classic_group(broker).generation_id == epoch
    assert {m.heartbeat() for m in (first, second)} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert first.commit(9, first.owned[0]) is ErrorCode.NONE
    first.say()
    first.join()
    second.say()
    second.join()
    assert first.joined.error_code == second.joined.error_code == ErrorCode.NONE
    assert first.generation_id == epoch + 1
    broker.crash_and_restart()
    assert classic_group(broker).members.keys() == {first.member_id, second.member_id}


def test_members_that_are_behind_may_commit_until_they_rejoin(broker: Broker) -> None:
    first, second = OldConsumer(broker, "1"), OldConsumer(broker, "2")
    new = mixed_group(broker, first)
    behind = first.generation_id
    assert second.take_part() is ErrorCode.NONE
    new.poll()
    assert consumer_group(broker).epoch > behind
    new.leave()
    assert first.commit(5, first.owned[0]) is ErrorCode.NONE
    broker.pass_ms(1)
    assert first.commit(6, first.owned[0]) is ErrorCode.NONE
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.say()
    first.join()
    assert first.is_parked
    other = broker.connect()
    late = first.client
    first.client = other
    assert first.commit(7, first.owned[0]) is ErrorCode.ILLEGAL_GENERATION
    first.client = late


def test_nonsense_in_the_protocol_that_is_chosen_stops_nothing(broker: Broker) -> None:
    good = OldConsumer(broker, "x").protocols[0][1]
    new = Consumer(broker, "new")
    settle(broker, new)
    for name, protocols in (
        ("1", [("a", good), ("b", b"")]),
        ("2", [("b", good), ("a", b"\xff")]),
    ):
        old = Member(broker, name, protocols=protocols)
        old.join()
        assert old.joined.error_code == ErrorCode.NONE
    new.leave()
    broker.pass_ms(1)
    assert len(classic_group(broker).members) == 2


def test_when_the_last_new_member_falls_silent(broker: Broker) -> None:
    old = OldConsumer(broker, "1", session_ms=60_000)
    mixed_group(broker, old)
    broker.pass_ms(46_000)
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert classic_group(broker).members.keys() == {old.member_id}


def test_a_static_member_that_comes_back_classic_changes_nothing_else(broker: Broker) -> None:
    new = Consumer(broker, "new", instance_id="i")
    old = OldConsumer(broker, "1")
    settle(broker, new)
    assert old.take_part() is ErrorCode.NONE
    all_beat(broker, new, old)
    had = new.has()
    new.leave_for_a_while()
    back = OldConsumer(broker, "back", instance_id="i")
    assert back.take_part() is ErrorCode.NONE
    assert back.owned == had
    broker.pass_ms(1)
    assert classic_group(broker).state_name == "Stable"
    assert (old.heartbeat(), back.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert back.commit(1, had[0]) is ErrorCode.NONE


def test_a_static_member_that_comes_back_classic_while_others_wait_for_partitions(
    broker: Broker,
) -> None:
    """Otherwise nobody would have what it gave up, and the others would not hear of it."""
    new = Consumer(broker, "new", instance_id="i")
    old, waiting = OldConsumer(broker, "1"), OldConsumer(broker, "2")
    settle(broker, new)
    assert old.take_part() is ErrorCode.NONE
    all_beat(broker, new, old)
    assert waiting.take_part() is ErrorCode.NONE
    assert not waiting.owned
    new.leave_for_a_while()
    back = OldConsumer(broker, "back", instance_id="i")
    back.join()
    assert back.joined.error_code == ErrorCode.NONE
    broker.pass_ms(1)
    members = (old, waiting, back)
    assert {m.heartbeat() for m in members} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert old.commit(5, old.owned[0]) is ErrorCode.NONE


def test_a_static_member_that_comes_back_new(broker: Broker) -> None:
    old = OldConsumer(broker, "1", instance_id="i")
    new = mixed_group(broker, old)
    had = old.owned
    back = Consumer(broker, "back", instance_id="i")
    assert back.heartbeat() is ErrorCode.NONE
    settle(broker, new, back)
    assert back.has() == had
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_without_the_way_back_the_group_stays_as_it_is(policy: str) -> None:
    broker = Broker(group_consumer_migration_policy=policy)
    old = OldConsumer(broker, "1")
    new = mixed_group(broker, old)
    new.leave()
    assert set(consumer_group(broker).members) == {old.member_id}
    all_beat(broker, old)
    assert old.owned == EVERYTHING


def test_an_empty_group_of_the_new_protocol_becomes_classic(broker: Broker) -> None:
    new = Consumer(broker, "new")
    settle(broker, new)
    new.leave()
    old = OldConsumer(broker, "old")
    old.say()
    old.join()
    broker.pass_ms(DELAY_MS)
    assert old.joined.error_code == ErrorCode.NONE
    assert classic_group(broker).generation_id == 1
    broker.crash_and_restart()
    assert isinstance(broker.shard().groups[GROUP], ClassicGroup)


# -- what consumers tell each other ------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_of_all_versions_are_read(version: int) -> None:
    message = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"x", rack_id="r")
    data = version.to_bytes(2, "big") + encoder(ConsumerProtocolSubscription, version)(message)
    read = consumer_protocol.read_subscription(data)
    assert (read.topics, read.user_data) == (["a", "b"], b"x")
    assert read.rack_id == ("r" if version == 3 else None)


def test_a_later_version_is_read_as_the_newest_known() -> None:
    message = ConsumerProtocolSubscription(topics=["a"])
    data = b"\0\x09" + encoder(ConsumerProtocolSubscription, 3)(message) + b"more"
    assert consumer_protocol.read_subscription(data).topics == ["a"]
    assert consumer_protocol.version_of(data) == 3


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\x07", b"\0\0\x7f\xff\xff\xff"]
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        consumer_protocol.read_subscription(data)
