"""Members that go: by their own will, by silence, or for a restart."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.consumer import migration, sessions, stored
from ottla.coordinator.consumer.current import LEAVING_STATIC
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import ConsumerMember
from ottla.coordinator.consumer.subscribing import subscribed
from ottla.coordinator.serde import GroupRecord


def remove(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> list[GroupRecord]:
    """Members are gone, and their partitions free.

    If all who stay speak the classic protocol, the group becomes a classic one again.
    """
    if migration.can_downgrade(group, members):
        return migration.downgrade(group, members)
    records: list[GroupRecord] = []
    for member in members:
        records.extend(stored.member_tombstones(group.group_id, member.member_id))
    left = subscribed(group, members)
    records.extend(left.records)
    records.append(stored.epoch_record(group.group_id, group.epoch + 1, left.metadata_hash))
    return records


def leave_for_a_while(group: ConsumerGroup, member: ConsumerMember) -> list[GroupRecord]:
    """A static member goes and is expected back within its session: it keeps what it has."""
    sessions.keep_alive(group, member)
    gone = member.current._replace(epoch=LEAVING_STATIC, revoking={})
    return [stored.current_record(group.group_id, member.member_id, gone)]
