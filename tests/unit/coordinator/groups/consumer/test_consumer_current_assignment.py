"""The steps of one member towards its target."""

from __future__ import annotations

import pytest

from ottla.coordinator.groups.consumer.current_assignment import (
    Current,
    MemberState,
    Target,
    current_of,
    current_value,
    is_subset,
    reconcile,
)
from ottla.coordinator.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    CurrentTopicPartitions,
)
from ottla.model.errors import ApiError, ErrorCode

T = b"t" * 16
U = b"u" * 16
STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS


def target(epoch: int, **topics: set[int]) -> Target:
    ids = {"t": T, "u": U}
    return Target(epoch, {ids[name]: frozenset(numbers) for name, numbers in topics.items()})


def test_a_new_member_gets_what_is_free() -> None:
    step = reconcile("a", Current(), target(3, t={0, 1}), {}, {})
    assert step == Current(3, 0, STABLE, {T: {0: 3, 1: 3}}, {})


def test_a_new_member_waits_for_what_is_another_s() -> None:
    owners = {T: {1: "b"}}
    step = reconcile("a", Current(), target(3, t={0, 1}), {}, owners)
    assert step == Current(3, 0, UNRELEASED, {T: {0: 3}}, {})
    assert reconcile("a", step, target(3, t={0, 1}), None, owners) is step
    free = reconcile("a", step, target(3, t={0, 1}), None, {T: {0: "a"}})
    assert free == Current(3, 0, STABLE, {T: {0: 3, 1: 3}}, {})


def test_who_has_all_stays_the_same() -> None:
    now = Current(3, 2, STABLE, {T: {0: 2}}, {})
    assert reconcile("a", now, target(3, t={0}), None, {}) is now


def test_a_new_epoch_without_changes_is_taken_at_once() -> None:
    now = Current(3, 2, STABLE, {T: {0: 2}}, {})
    step = reconcile("a", now, target(7, t={0}), None, {T: {0: "a"}})
    assert step == Current(7, 3, STABLE, {T: {0: 2}}, {})


def test_what_is_to_go_is_asked_for_and_the_epoch_waits() -> None:
    now = Current(3, 2, STABLE, {T: {0: 2, 1: 3}}, {})
    step = reconcile("a", now, target(4, t={0}, u={5}), None, {})
    assert step == Current(3, 2, UNREVOKED, {T: {0: 2}}, {T: {1: 3}})
    owns = {T: frozenset((0, 1))}
    assert reconcile("a", step, target(4, t={0}, u={5}), owns, {}) is step
    assert reconcile("a", step, target(4, t={0}, u={5}), None, {}) is step
    given = reconcile("a", step, target(4, t={0}, u={5}), {T: frozenset((0,))}, {})
    assert given == Current(4, 3, STABLE, {T: {0: 2}, U: {5: 4}}, {})


def test_who_says_that_it_does_not_have_it_need_not_give_it_up() -> None:
    now = Current(3, 2, STABLE, {T: {0: 2, 1: 3}}, {})
    step = reconcile("a", now, target(4, t={0}), {T: frozenset((0,))}, {})
    assert step == Current(4, 3, STABLE, {T: {0: 2}}, {})


def test_a_topic_goes_whole() -> None:
    now = Current(3, 2, STABLE, {T: {0: 2}, U: {0: 2}}, {})
    step = reconcile("a", now, target(4, u={0}), None, {})
    assert step == Current(3, 2, UNREVOKED, {U: {0: 2}}, {T: {0: 2}})


def test_what_was_given_up_may_come_back_with_a_new_epoch() -> None:
    now = Current(3, 2, UNREVOKED, {}, {T: {0: 2}})
    step = reconcile("a", now, target(5, t={0}), {}, {T: {0: "a"}})
    assert step == Current(5, 3, STABLE, {T: {0: 5}}, {})


def test_a_target_may_change_while_a_member_gives_up() -> None:
    now = Current(3, 2, UNREVOKED, {T: {0: 2, 1: 2}}, {T: {2: 2}})
    step = reconcile("a", now, target(6, t={0}), {T: frozenset((0, 1))}, {})
    assert step == Current(3, 2, UNREVOKED, {T: {0: 2}}, {T: {1: 2}})


def test_a_state_nobody_knows_can_only_be_left_empty_handed() -> None:
    now = Current(3, 2, MemberState.UNKNOWN, {T: {0: 2}}, {})
    for owned in (None, {T: frozenset((0,))}):
        with pytest.raises(ApiError) as refusal:
            reconcile("a", now, target(4, t={0}), owned, {})
        assert refusal.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconcile("a", now, target(4, t={0}), {}, {}).epoch == 4


def test_commits_count_for_what_a_member_had_ever_since() -> None:
    now = Current(7, 6, UNREVOKED, {T: {0: 3}}, {T: {1: 5}})
    assert now.may_commit(T, 0, 3)
    assert not now.may_commit(T, 0, 2)
    assert now.may_commit(T, 1, 6)
    assert not now.may_commit(T, 1, 4)
    assert not now.may_commit(T, 2, 7)
    assert not now.may_commit(U, 0, 7)


def test_subsets() -> None:
    assert is_subset({T: frozenset((0,))}, {T: {0: 1, 1: 1}})
    assert is_subset({}, {})
    assert not is_subset({T: frozenset((2,))}, {T: {0: 1, 1: 1}})
    assert not is_subset({U: frozenset((0,))}, {T: {0: 1}})
    assert not is_subset(None, {T: {0: 1}})


def test_what_is_stored_says_it_all() -> None:
    now = Current(7, 6, UNREVOKED, {T: {2: 3, 0: 7}}, {U: {1: 5}})
    assert current_of(current_value(now)) == now


def test_records_without_epochs_and_of_later_versions_are_understood() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4,
        previous_member_epoch=3,
        state=9,
        assigned_partitions=[CurrentTopicPartitions(topic_id=T, partitions=[0, 1])],
    )
    assert current_of(value) == Current(4, 3, MemberState.UNKNOWN, {T: {0: 4, 1: 4}}, {})
