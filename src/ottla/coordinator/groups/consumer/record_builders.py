"""Makes the records of a consumer group, and their tombstones (KIP-848)."""

from __future__ import annotations

from ottla.coordinator.groups.consumer.assignment import Partitions, from_pairs
from ottla.coordinator.groups.consumer.current_assignment import Current, current_value
from ottla.coordinator.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
)
from ottla.coordinator.groups.record_serde import GroupRecord


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """Return the record of a new group epoch."""
    return ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(
        epoch=epoch, metadata_hash=metadata_hash
    )


def member_record(
    group_id: str, member_id: str, metadata: ConsumerGroupMemberMetadataValue
) -> GroupRecord:
    """Return the record of a member's metadata."""
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), metadata


def current_record(group_id: str, member_id: str, current: Current) -> GroupRecord:
    """Return the record of a member's current assignment."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return key, current_value(current)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> GroupRecord:
    """Return the record of a member's target."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
        ]
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    """Return the target that a record holds."""
    return from_pairs((topic.topic_id, topic.partitions) for topic in value.topic_partitions)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> GroupRecord:
    """Return the record of the target assignment's epoch."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return key, ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )


def regex_record(
    group_id: str, regex: str, topics: frozenset[str], version: int, timestamp_ms: int
) -> GroupRecord:
    """Return the record of the topics that match a regular expression."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return key, ConsumerGroupRegularExpressionValue(
        topics=sorted(topics), version=version, timestamp=timestamp_ms
    )


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    """Return the tombstone of a regular expression that no member uses."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return key, None


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """Return the tombstones of a member, in the order that Kafka requires."""
    return [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[GroupRecord]:
    """Return the tombstones of a group without members."""
    return [
        (ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        (ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
