"""Removing offsets that are no longer needed: expired, or of a deleted topic (KIP-211)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import NO_EXPIRATION, OffsetCommitKey, OffsetCommitValue
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.model.ids import ZERO_UUID
from ottla.model.steps import Steps

_MINUTE_MS = 60_000
_GROUPS_A_STEP: Final = 100
_OFFSETS_A_STEP: Final = 300


def expire_offsets(runtime: ShardRuntime[GroupShard]) -> Steps[None]:
    """Delete expired offsets, and empty groups that have none left."""
    shard = runtime.shard
    for number, group in enumerate(list(shard.groups.values())):
        if not number % _GROUPS_A_STEP:
            yield
        if not runtime.is_active or shard.groups.get(group.group_id) is not group:
            continue
        shard.remove_if_unused(group.group_id)
        nothing_left = yield from _expire_offsets(runtime, group)
        if (
            nothing_left
            and runtime.is_active
            and shard.groups.get(group.group_id) is group
            and group.group_id not in shard.offsets.by_group
            and group.is_empty
            and not shard.offsets.has_open_transactions(group.group_id)
        ):
            runtime.write_in_parts(group.tombstones())


def delete_topic_offsets(
    runtime: ShardRuntime[GroupShard], topics: Mapping[str, bytes]
) -> Steps[None]:
    """Delete all offsets of deleted topics, given by name with their ids.

    A topic of the same name may exist again. Its offsets have another topic id.
    """
    shard = runtime.shard
    offsets = shard.offsets
    for number, group_id in enumerate(list(offsets.by_group)):
        if not number % _GROUPS_A_STEP:
            yield
        for topic in topics.keys() & offsets.by_group.get(group_id, {}).keys():
            partitions = list(offsets.by_group[group_id].get(topic, ()))
            for start in range(0, len(partitions), _OFFSETS_A_STEP):
                some = partitions[start : start + _OFFSETS_A_STEP]
                runtime.write_in_parts(_of_topic(shard, group_id, topic, some, topics[topic]))
                yield
    pending = offsets.pending()
    for start in range(0, len(pending), _OFFSETS_A_STEP):
        runtime.write_in_parts(
            [
                (OffsetCommitKey(group=place[0], topic=place[1], partition=place[2]), None)
                for place in pending[start : start + _OFFSETS_A_STEP]
                if place[1] in topics
                and offsets.is_pending_for(place, (ZERO_UUID, topics[place[1]]))
            ]
        )
        yield


def _of_topic(
    shard: GroupShard, group_id: str, topic: str, partitions: list[int], topic_id: bytes
) -> list[GroupRecord]:
    records: list[GroupRecord] = []
    for partition in partitions:
        value = shard.offsets.get(group_id, topic, partition)
        if value is not None and value.topic_id in (ZERO_UUID, topic_id):
            key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            records.append((key, None))
    return records


def _expire_offsets(runtime: ShardRuntime[GroupShard], group: Group) -> Steps[bool]:
    """Delete a group's expired offsets, and return True if none are left."""
    shard, group_id = runtime.shard, group.group_id
    topics = shard.offsets.by_group.get(group_id)
    if not topics:
        return True
    subscribed = group.subscribed_topics()
    nothing_left = True
    for topic in list(topics):
        used = subscribed is None or topic in subscribed
        partitions = list(topics.get(topic, ()))
        for start in range(0, len(partitions), _OFFSETS_A_STEP):
            records: list[GroupRecord] = []
            for partition in partitions[start : start + _OFFSETS_A_STEP]:
                value = shard.offsets.get(group_id, topic, partition)
                if value is None:
                    continue
                if (
                    used
                    or not _is_expired(shard, group, value)
                    or shard.offsets.is_unstable(group_id, topic, partition)
                ):
                    nothing_left = False
                else:
                    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
                    records.append((key, None))
            runtime.write_in_parts(records)
            if start + _OFFSETS_A_STEP < len(partitions):
                yield
    return nothing_left


def _is_expired(shard: GroupShard, group: Group, value: OffsetCommitValue) -> bool:
    since_ms = group.retention_start(value)
    if since_ms is None:
        return False
    broker = shard.broker
    if value.expire_timestamp != NO_EXPIRATION:
        return broker.wall_ms >= value.expire_timestamp
    return broker.wall_ms - since_ms >= broker.config.offsets.offsets_retention_minutes * _MINUTE_MS
