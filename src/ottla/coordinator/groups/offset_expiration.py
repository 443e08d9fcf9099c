"""Tombstones of offsets that are no longer needed: expired, or of a deleted topic (KIP-211)."""

from __future__ import annotations

from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import NO_EXPIRATION, OffsetCommitKey, OffsetCommitValue

_MINUTE_MS = 60_000


def expiration_tombstones(shard: GroupShard) -> list[GroupRecord]:
    """Return tombstones of expired offsets, and of empty groups that have none left."""
    records: list[GroupRecord] = []
    for group in list(shard.groups.values()):
        shard.remove_if_unused(group.group_id)
        if (
            _expire_offsets(shard, group, records)
            and group.is_empty
            and not shard.offsets.has_open_transactions(group.group_id)
        ):
            records += group.tombstones()
    return records


def deleted_topic_tombstones(shard: GroupShard, topic: str) -> list[GroupRecord]:
    """Return tombstones of all offsets of a topic that was deleted."""
    records: list[GroupRecord] = []
    for group_id, topics in shard.offsets.by_group.items():
        for partition in topics.get(topic, ()):
            records.append(
                (OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
            )
    for key in shard.offsets.pending():
        if key.topic == topic:
            records.append((key, None))
    return records


def _expire_offsets(shard: GroupShard, group: Group, records: list[GroupRecord]) -> bool:
    """Add tombstones of a group's expired offsets, and return True if none are left."""
    offsets = shard.offsets.by_group.get(group.group_id)
    if not offsets:
        return True
    subscribed = group.subscribed_topics()
    nothing_left = True
    for topic, partitions in offsets.items():
        used = subscribed is None or topic in subscribed
        for partition, value in partitions.items():
            if (
                used
                or not _is_expired(shard, group, value)
                or shard.offsets.is_unstable(group.group_id, topic, partition)
            ):
                nothing_left = False
            else:
                key = OffsetCommitKey(group=group.group_id, topic=topic, partition=partition)
                records.append((key, None))
    return nothing_left


def _is_expired(shard: GroupShard, group: Group, value: OffsetCommitValue) -> bool:
    since_ms = group.retention_start(value)
    if since_ms is None:
        return False
    broker = shard.broker
    if value.expire_timestamp != NO_EXPIRATION:
        return broker.wall_ms >= value.expire_timestamp
    return broker.wall_ms - since_ms >= broker.config.offsets.offsets_retention_minutes * _MINUTE_MS
