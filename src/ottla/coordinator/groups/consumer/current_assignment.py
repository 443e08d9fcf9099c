"""The current assignment of a member, and its next step towards its target (KIP-848).

States and transitions:

- STABLE: the member has what the target assignment of its epoch says. With a new target
  assignment it becomes UNREVOKED if it owns something it must give up. Otherwise it goes on as
  after UNREVOKED.
- UNREVOKED: it stays in its epoch until it has confirmed that it gave up what it must. Then it
  takes the epoch of the target assignment. It becomes UNRELEASED if something in its target
  still belongs to another member, else STABLE.
- UNRELEASED: it gets partitions as they become free, until nothing is missing.

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
"""Special member epochs: to join, to leave, and to leave for a restart."""

Owners: TypeAlias = Mapping[bytes, Mapping[int, str]]
"""Topic id to partition to the member that owns it."""

EpochPartitions: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Topic id to partition to the member epoch in which it was assigned (KIP-1251)."""

_NOTHING: Final[frozenset[int]] = frozenset()
_NO_EPOCHS: Final[Mapping[int, int]] = {}
_NO_OWNERS: Final[Mapping[int, str]] = {}


class MemberState(IntEnum):
    """The states of a member, with Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Current(NamedTuple):
    """A member's epoch, its partitions, and those it must give up."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: EpochPartitions = {}
    revoking: EpochPartitions = {}

    def is_reconciled(self, epoch: int) -> bool:
        """Return True if the member has all of the target assignment of this epoch."""
        return self.epoch == epoch and self.state is MemberState.STABLE

    def may_commit(self, topic_id: bytes, partition: int, epoch: int) -> bool:
        """Return True if the member has always owned the partition since this epoch."""
        for partitions in (self.assigned, self.revoking):
            since = partitions.get(topic_id, _NO_EPOCHS).get(partition)
            if since is not None:
                return since <= epoch
        return False


class Target(NamedTuple):
    """What a member is to have in a group epoch."""

    epoch: int
    partitions: Partitions


def reconcile(
    member_id: str, current: Current, target: Target, owned: Partitions | None, owners: Owners
) -> Current:
    """Return the next step of a member towards its target, or `current` if there is none.

    `owned` is what the member says it owns, None if it says nothing. Raise FENCED_MEMBER_EPOCH
    if the state is unknown here and the member must start again.
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
    """Add the free partitions of the target. Return True if none is missing after that."""
    complete = True
    for topic_id, wanted in target.partitions.items():
        have = kept.get(topic_id, _NO_EPOCHS)
        if len(have) == len(wanted):
            continue
        owner_of = owners.get(topic_id, _NO_OWNERS)
        missing = free = sorted(wanted - have.keys())
        if not owner_of.keys().isdisjoint(missing):
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
    """Return the new step, or `current` if it is equal.

    A member may still send the previous epoch if it did not receive this one.
    """
    if epoch == current.epoch:
        changed = Current(epoch, current.previous_epoch, state, assigned, revoking)
        return current if changed == current else changed
    return Current(epoch, current.epoch, state, assigned, revoking)


def _owns(owned: Partitions | None, revoking: EpochPartitions) -> bool:
    """Return True if the member may still own any of these."""
    if owned is None:
        return True
    return any(
        not partitions.isdisjoint(revoking.get(topic_id, _NO_EPOCHS))
        for topic_id, partitions in owned.items()
    )


def is_subset(owned: Partitions | None, assigned: EpochPartitions) -> bool:
    """Return True if the member says what it owns, and that was all assigned to it."""
    return owned is not None and all(
        partitions <= assigned.get(topic_id, _NO_EPOCHS).keys()
        for topic_id, partitions in owned.items()
    )


def current_value(current: Current) -> ConsumerGroupCurrentMemberAssignmentValue:
    """Return the value of its record."""
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_stored(current.assigned),
        partitions_pending_revocation=_stored(current.revoking),
    )


def _stored(partitions: EpochPartitions) -> list[CurrentTopicPartitions]:
    stored = []
    for topic_id, epochs in partitions.items():
        numbers = sorted(epochs)
        epochs_in_order = list(map(epochs.__getitem__, numbers))
        stored.append(
            CurrentTopicPartitions(
                topic_id=topic_id, partitions=numbers, assignment_epochs=epochs_in_order
            )
        )
    return stored


def current_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    """Return the current assignment that a record holds."""
    try:
        state = MemberState(value.state)
    except ValueError:  # of a newer Kafka
        state = MemberState.UNKNOWN
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        state,
        _loaded(value.assigned_partitions, value.member_epoch),
        _loaded(value.partitions_pending_revocation, value.member_epoch),
    )


def _loaded(topics: list[CurrentTopicPartitions], member_epoch: int) -> EpochPartitions:
    """Return partitions with epochs. Records before KIP-1251 have none."""
    return {
        topic.topic_id: dict(zip(topic.partitions, topic.assignment_epochs, strict=True))
        if len(topic.assignment_epochs) == len(topic.partitions)
        else dict.fromkeys(topic.partitions, member_epoch)
        for topic in topics
        if topic.partitions
    }
