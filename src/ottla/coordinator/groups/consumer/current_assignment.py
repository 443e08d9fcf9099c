"""What a member has now, and its next step towards what it is to have (KIP-848).

States and what leads from one to another:

- STABLE: it has what the target assignment of its epoch says. A new target assignment:
  UNREVOKED if it owns something it must give up, else as after UNREVOKED.
- UNREVOKED: it stays in its epoch until it has told that it gave up what it must. Then it
  takes the epoch of the target assignment: UNRELEASED if something it is to have still
  belongs to another member, else STABLE.
- UNRELEASED: it gets what has become free, step by step, until nothing is missing.

A partition belongs to a member from the record that assigns it to the record that shows the
member gave it up. In between it is in `assigned` or in `revoking`, and nobody else gets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from ottla.coordinator.groups.consumer.assignment import Partitions
from ottla.coordinator.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    CurrentTopicPartitions,
)
from ottla.model.errors import ApiError, ErrorCode

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_STATIC: Final = -2
"""Member epochs that mean something else: to join, to leave, to leave for a restart."""

Owners: TypeAlias = Mapping[bytes, Mapping[int, str]]
"""Topic id to partition to the member it belongs to."""

EpochPartitions: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Topic id to partition to the member epoch in which it was assigned (KIP-1251)."""

_NOTHING: Final[frozenset[int]] = frozenset()
_NO_EPOCHS: Final[Mapping[int, int]] = {}
_NO_OWNERS: Final[Mapping[int, str]] = {}


class MemberState(IntEnum):
    """How far a member is, as Kafka numbers it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Current(NamedTuple):
    """What a member has, in which epoch, and what it is asked to give up."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: EpochPartitions = {}
    revoking: EpochPartitions = {}

    def is_reconciled(self, epoch: int) -> bool:
        """Whether it has all that the target assignment of this epoch says."""
        return self.epoch == epoch and self.state is MemberState.STABLE

    def may_commit(self, topic_id: bytes, partition: int, epoch: int) -> bool:
        """Whether the member had the partition without interruption since this epoch."""
        for partitions in (self.assigned, self.revoking):
            since = partitions.get(topic_id, _NO_EPOCHS).get(partition)
            if since is not None:
                return since <= epoch
        return False


class Target(NamedTuple):
    """What a member is to have, and of which group epoch that is."""

    epoch: int
    partitions: Partitions


def reconcile(
    member_id: str, current: Current, target: Target, owned: Partitions | None, owners: Owners
) -> Current:
    """The next step of a member towards its target; the same object if there is none.

    `owned` is what the member says it has, None if it says nothing. FENCED_MEMBER_EPOCH when
    a state nobody here knows can only be left by starting over.
    """
    if current.is_reconciled(target.epoch):
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, current.revoking):
        return current
    if current.state is MemberState.UNKNOWN and (owned is None or owned):
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in an unknown state: it must give up its partitions and rejoin",
        )
    return _advance(member_id, current, target, owned, owners)


def _advance(
    member_id: str, current: Current, target: Target, owned: Partitions | None, owners: Owners
) -> Current:
    kept: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        wanted = target.partitions.get(topic_id, _NOTHING)
        if epochs.keys() <= wanted:
            kept[topic_id] = epochs
            continue
        revoking[topic_id] = {p: epoch for p, epoch in epochs.items() if p not in wanted}
        if len(revoking[topic_id]) < len(epochs):
            kept[topic_id] = {p: epoch for p, epoch in epochs.items() if p in wanted}
    if revoking and _owns(owned, revoking):
        state = MemberState.UNREVOKED_PARTITIONS
        return _changed(current, current.epoch, state, kept, revoking)
    complete = _take_free(member_id, target, owners, kept)
    state = MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS
    return _changed(current, target.epoch, state, kept, {})


def _take_free(
    member_id: str, target: Target, owners: Owners, kept: dict[bytes, Mapping[int, int]]
) -> bool:
    """Add what is free of the target; whether that is all of it."""
    complete = True
    for topic_id, wanted in target.partitions.items():
        have = kept.get(topic_id, _NO_EPOCHS)
        if len(have) == len(wanted):
            continue
        owner_of = owners.get(topic_id, _NO_OWNERS)
        missing = sorted(wanted - have.keys())
        free = [p for p in missing if owner_of.get(p, member_id) == member_id]
        if free:
            kept[topic_id] = {**have, **dict.fromkeys(free, target.epoch)}
        complete = complete and len(free) == len(missing)
    return complete


def _changed(
    current: Current,
    epoch: int,
    state: MemberState,
    assigned: EpochPartitions,
    revoking: EpochPartitions,
) -> Current:
    """The new step, or the same object if nothing is new about it.

    The previous epoch is the one a member may come back with if it never heard of this one.
    """
    if epoch == current.epoch:
        changed = Current(epoch, current.previous_epoch, state, assigned, revoking)
        return current if changed == current else changed
    return Current(epoch, current.epoch, state, assigned, revoking)


def _owns(owned: Partitions | None, revoking: EpochPartitions) -> bool:
    """Whether the member still has any of these, as far as we know."""
    if owned is None:
        return True
    return any(
        not partitions.isdisjoint(revoking.get(topic_id, _NO_EPOCHS))
        for topic_id, partitions in owned.items()
    )


def is_subset(owned: Partitions | None, assigned: EpochPartitions) -> bool:
    """Whether the member says what it has, and has nothing else than it was given."""
    return owned is not None and all(
        partitions <= assigned.get(topic_id, _NO_EPOCHS).keys()
        for topic_id, partitions in owned.items()
    )


def current_value(current: Current) -> ConsumerGroupCurrentMemberAssignmentValue:
    """What is stored of it."""
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_stored(current.assigned),
        partitions_pending_revocation=_stored(current.revoking),
    )


def _stored(partitions: EpochPartitions) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epoch for _, epoch in sorted(epochs.items())],
        )
        for topic_id, epochs in partitions.items()
    ]


def current_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    """What a stored record says."""
    try:
        state = MemberState(value.state)
    except ValueError:  # of a later version of Kafka
        state = MemberState.UNKNOWN
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        state,
        _loaded(value.assigned_partitions, value.member_epoch),
        _loaded(value.partitions_pending_revocation, value.member_epoch),
    )


def _loaded(topics: list[CurrentTopicPartitions], member_epoch: int) -> EpochPartitions:
    """The partitions; those without an epoch were stored before there were any (KIP-1251)."""
    return {
        topic.topic_id: dict(zip(topic.partitions, topic.assignment_epochs, strict=True))
        if len(topic.assignment_epochs) == len(topic.partitions)
        else dict.fromkeys(topic.partitions, member_epoch)
        for topic in topics
        if topic.partitions
    }
