"""Migration between classic groups and consumer groups, while the group runs (KIP-848).

A classic group becomes a consumer group when the first member joins that speaks the consumer
protocol. All members keep their partitions, and the others go on with the classic protocol
(`classic_members`). It becomes a classic group again when the last such member leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.member import ClassicMember
from ottla.coordinator.groups.classic.rebalance import keep_alive, prepare_rebalance
from ottla.coordinator.groups.classic.subscribed_topics import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.groups.consumer import consumer_protocol, record_builders
from ottla.coordinator.groups.consumer.assignment import Partitions
from ottla.coordinator.groups.consumer.current_assignment import Current, EpochPartitions
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.consumer.member_update import MemberUpdate
from ottla.coordinator.groups.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from ottla.coordinator.groups.consumer.replay import apply
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.codec import DecodeError
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse

KNOWN_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Names of clients' assignors whose user data the broker can do without."""

_UPGRADES = ("upgrade", "bidirectional")
_DOWNGRADES = ("downgrade", "bidirectional")


# -- from classic to consumer ------------------------------------------------------------


def upgrade(shard: GroupShard, group: Group) -> tuple[ConsumerGroup, list[GroupRecord]]:
    """Return the group as a consumer group, and the records that convert it.

    Raise GROUP_ID_NOT_FOUND if that is impossible.
    """
    if not isinstance(group, ClassicGroup):
        raise _refused(group, "it is of another type")
    made = ConsumerGroup(shard, group.group_id)
    if group.is_empty:
        return made, group.tombstones()
    _check_upgrade(group)
    try:
        records = _converted(group)
    except DecodeError as error:
        raise _refused(group, "the embedded consumer protocol is malformed") from error
    for record in records:
        apply(made, *record)
    return made, group.tombstones() + records


def _check_upgrade(group: ClassicGroup) -> None:
    config = group.shard.broker.config
    if config.consumer_groups.group_consumer_migration_policy not in _UPGRADES:
        raise _refused(group, "online upgrade is disabled")
    if not group.uses_consumer_protocol:
        raise _refused(group, "it does not use the consumer embedded protocol")
    if len(group.members) > config.consumer_groups.group_consumer_max_size:
        raise _refused(group, "its size exceeds the consumer group maximum size")


def _refused(group: Group, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def _converted(group: ClassicGroup) -> list[GroupRecord]:
    """Return the records of the group and its members, with their last assignments."""
    group_id, epoch = group.group_id, group.generation_id
    claimed: dict[bytes, set[int]] = {}
    described: list[GroupRecord] = []
    assigned: list[GroupRecord] = []
    for member in group.members.values():
        metadata, partitions = _convert(group, member)
        current = Current(epoch, epoch, assigned=_claim(partitions, epoch, claimed))
        target = {topic_id: frozenset(numbers) for topic_id, numbers in current.assigned.items()}
        described.append(record_builders.member_record(group_id, member.member_id, metadata))
        assigned.append(record_builders.target_record(group_id, member.member_id, target))
        assigned.append(record_builders.current_record(group_id, member.member_id, current))
    return [
        *described,
        record_builders.epoch_record(group_id, epoch, 0),
        *assigned,
        record_builders.target_epoch_record(group_id, epoch, 0),
    ]


def _convert(
    group: ClassicGroup, member: ClassicMember
) -> tuple[ConsumerGroupMemberMetadataValue, Partitions]:
    protocol = group.protocol_name
    if protocol not in member.protocols:  # before the first generation
        protocol = next(iter(member.protocols), "")
    subscription = consumer_protocol.read_subscription(member.metadata(protocol))
    image = group.shard.broker.image
    metadata = ConsumerGroupMemberMetadataValue(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=data) for name, data in member.protocols.items()
            ],
        ),
    )
    assignment = consumer_protocol.read_assignment(member.assignment)
    if assignment.user_data and protocol not in KNOWN_ASSIGNORS:
        raise _refused(group, "what its own assignor told the members would be lost")
    return metadata, consumer_protocol.by_id(assignment.assigned_partitions, image)


def _claim(partitions: Partitions, epoch: int, claimed: dict[bytes, set[int]]) -> EpochPartitions:
    """Return partitions that no earlier member has: the assignment of a client may be wrong."""
    own: dict[bytes, dict[int, int]] = {}
    for topic_id, numbers in partitions.items():
        taken = claimed.setdefault(topic_id, set())
        free = numbers - taken
        if free:
            own[topic_id] = dict.fromkeys(sorted(free), epoch)
            taken |= free
    return own


def ask_to_rejoin(group: Group | None) -> None:
    """Answer parked joins and syncs of a classic group: these members must join again."""
    if not isinstance(group, ClassicGroup):
        return
    code = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        group.answer_join(member, JoinGroupResponse(error_code=code, member_id=member.member_id))
        group.answer_sync(member, SyncGroupResponse(error_code=code))


# -- from consumer to classic ------------------------------------------------------------


def can_downgrade(group: ConsumerGroup, gone: Sequence[ConsumerMember]) -> bool:
    """Return True if all members but these could form a classic group."""
    config = group.shard.broker.config
    left = len(group.members) - len(gone)
    return (
        any(member.classic is None for member in gone)
        and group.member_counts.classic - sum(member.classic is not None for member in gone) == left
        and 0 < left <= config.groups.group_max_size
        and group.member_counts.classic in group.member_counts.classic_protocols.values()
        and config.consumer_groups.group_consumer_migration_policy in _DOWNGRADES
    )


def downgrade(group: ConsumerGroup, gone: Sequence[ConsumerMember]) -> list[GroupRecord]:
    """Return the records of the classic group without these members. It rebalances at once."""
    left_out = {member.member_id for member in gone}
    stay = [
        _classic_member(member_id, member.metadata, member.current.epoch)
        for member_id, member in group.members.items()
        if member_id not in left_out
    ]
    return _as_classic(group, stay, group.targets, rebalances=True)


def can_downgrade_with(update: MemberUpdate) -> bool:
    """Return True if a classic member replaces the last one of the consumer protocol."""
    group, config = update.group, update.group.shard.broker.config
    return (
        update.replaces is not None
        and update.replaces.classic is None
        and group.member_counts.classic == len(group.members) - 1
        and len(group.members) <= config.groups.group_max_size
        and config.consumer_groups.group_consumer_migration_policy in _DOWNGRADES
    )


def downgrade_with(update: MemberUpdate) -> list[GroupRecord]:
    """Return the records of the classic group to which a static member returns.

    It rebalances if a member does not have what it is assigned, or still has something else.
    """
    group, replaced = update.group, update.replaces
    assert replaced is not None
    is_settled = all(
        member is replaced or member.current.is_reconciled(group.epoch)
        for member in group.members.values()
    )
    members = [
        _classic_member(member_id, member.metadata, member.current.epoch)
        if member is not replaced
        else _classic_member(update.member_id, update.metadata, group.epoch)
        for member_id, member in group.members.items()
    ]
    targets = {**group.targets, update.member_id: group.targets.get(replaced.member_id, {})}
    return _as_classic(group, members, targets, rebalances=not is_settled)


def _as_classic(
    group: ConsumerGroup,
    members: Sequence[ClassicMember],
    targets: Mapping[str, Partitions],
    *,
    rebalances: bool,
) -> list[GroupRecord]:
    """Return tombstones of the group, and its record as a classic group.

    The group epoch becomes the generation. The classic group replaces this one at once: its
    record has less than the group knows of its members, and members that are epochs behind
    may send requests in the same wake-up.
    """
    made = ClassicGroup(group.shard, group.group_id)
    for member in members:
        made.add(member)
    made.protocol_type = CONSUMER_PROTOCOL_TYPE
    made.generation_id = group.epoch
    made.protocol_name = made.select_protocol()
    image = group.shard.broker.image
    assignments = {
        member.member_id: consumer_protocol.write_assignment(
            targets.get(member.member_id, {}),
            consumer_protocol.version_for(member.metadata(made.protocol_name)),
            image,
        )
        for member in members
    }
    tombstones = group.tombstones()
    group.close(ErrorCode.NONE)
    group.shard.groups[group.group_id] = made
    group.shard.after(0, partial(_begin_classic, made, rebalances))
    return [*tombstones, made.record(assignments)]


def _classic_member(
    member_id: str, metadata: ConsumerGroupMemberMetadataValue, epoch: int
) -> ClassicMember:
    classic = metadata.classic_member_metadata
    assert classic is not None
    member = ClassicMember(
        member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        {protocol.name: protocol.metadata for protocol in classic.supported_protocols},
    )
    member.former_generation_id = epoch
    return member


def _begin_classic(group: ClassicGroup, rebalances: bool) -> list[GroupRecord]:
    """Start the sessions of the members, and perhaps a rebalance: the records are replayed."""
    if group.shard.groups.get(group.group_id) is not group:
        return []
    for member in group.members.values():
        keep_alive(group, member)
    return prepare_rebalance(group) if rebalances else []
