"""Removing members: they leave, their session expires, or they restart."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.groups.consumer import migration, record_builders, sessions
from ottla.coordinator.groups.consumer.current_assignment import LEAVING_STATIC
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.consumer.subscription_metadata import subscribed
from ottla.coordinator.groups.record_serde import GroupRecord


def remove(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> list[GroupRecord]:
    """Return the records that remove members and free their partitions.

    If all that stay speak the classic protocol, the group becomes a classic one.
    """
    if migration.can_downgrade(group, members):
        return migration.downgrade(group, members)
    records: list[GroupRecord] = []
    for member in members:
        records.extend(record_builders.member_tombstones(group.group_id, member.member_id))
    left = subscribed(group, members)
    records.extend(left.records)
    records.append(
        record_builders.epoch_record(group.group_id, group.epoch + 1, left.metadata_hash)
    )
    return records


def leave_for_restart(group: ConsumerGroup, member: ConsumerMember) -> list[GroupRecord]:
    """Return the record of a static member that restarts. It keeps its partitions meanwhile."""
    sessions.keep_alive(group, member)
    gone = member.current._replace(epoch=LEAVING_STATIC, revoking={})
    return [record_builders.current_record(group.group_id, member.member_id, gone)]
