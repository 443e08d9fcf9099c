"""How the records of consumer groups change a shard.

A log may be compacted: it has only the last record of a key. So records of a member may come
without those that were written before them, and tombstones for what does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.record_builders import target_of
from ottla.coordinator.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.coordinator.runtime.record import RecordKey, RecordValue

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

CONSUMER_GROUP_KEYS: Final[tuple[type[RecordKey], ...]] = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)


def replay(shard: GroupShard, key: RecordKey, value: RecordValue | None) -> None:
    """Apply a record of a consumer group."""
    group_id: str = key.group_id  # type: ignore[attr-defined]  # they all have one
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            shard.remove_group(group_id)
            return
    elif value is None:
        return
    else:
        if group is not None:  # a classic group that is empty, or that nobody ever joined
            shard.remove_group(group_id)
        group = shard.groups[group_id] = ConsumerGroup(shard, group_id, is_live=shard.is_loaded)
    apply(group, key, value)


def apply(group: ConsumerGroup, key: RecordKey, value: RecordValue | None) -> None:
    """Apply a record to this group. The tombstone of the group itself is not for it."""
    match key:
        case ConsumerGroupMetadataKey():
            assert isinstance(value, ConsumerGroupMetadataValue)
            group.set_epoch(value.epoch, value.metadata_hash)
        case ConsumerGroupMemberMetadataKey():
            if value is None:
                group.remove_member(key.member_id)
            else:
                assert isinstance(value, ConsumerGroupMemberMetadataValue)
                group.set_member(key.member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey():
            if value is None:
                group.set_assignment_epoch(0, 0)
            else:
                assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        case ConsumerGroupTargetAssignmentMemberKey():
            if value is None:
                group.set_target(key.member_id, None)
            else:
                assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                group.set_target(key.member_id, target_of(value))
        case ConsumerGroupCurrentMemberAssignmentKey():
            assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            group.set_current(key.member_id, value)
        case ConsumerGroupRegularExpressionKey():
            assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
            group.set_regex(key.regular_expression, value)
        case _:
            """Kafka before 4.1 wrote it. What is needed of the topics is in the metadata."""
