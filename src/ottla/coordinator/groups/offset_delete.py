"""OffsetDelete: deleting committed offsets of one group (KIP-496)."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import OffsetCommitKey
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

PARTITIONS_A_STEP: Final = 100


def delete_offsets(
    runtime: ShardRuntime[GroupShard], request: OffsetDeleteRequest
) -> Steps[OffsetDeleteResponse]:
    """Delete offsets, and return the response, valid once everything written is committed.

    A partition that is named several times has one result. Raise ApiError if the request is
    refused as a whole.
    """
    _check(runtime.shard, request.group_id)
    asked = yield from _partitions_once(request)
    topics = []
    for name, indexes in asked.items():
        results: list[OffsetDeleteResponsePartition] = []
        rest = iter(indexes)
        while some := list(islice(rest, PARTITIONS_A_STEP)):
            results += _delete(runtime, request.group_id, name, some)
            yield
        yield
        if results:
            topics.append(OffsetDeleteResponseTopic(name=name, partitions=results))
    return OffsetDeleteResponse(topics=topics)


def _partitions_once(request: OffsetDeleteRequest) -> Steps[dict[str, dict[int, None]]]:
    once: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        indexes = once.setdefault(topic.name, {})
        rest = iter(topic.partitions)
        while some := list(islice(rest, PARTITIONS_A_STEP)):
            indexes.update((partition.partition_index, None) for partition in some)
            yield
        yield
    return once


def _check(shard: GroupShard, group_id: str) -> None:
    group = shard.groups.get(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.check_offset_delete()


def _subscribed(shard: GroupShard, group_id: str) -> Collection[str] | None:
    """Return the topics whose offsets must be kept, None for all."""
    group = shard.groups.get(group_id)
    if group is None:  # a group that nobody joined is gone with its last offset
        return ()
    group.check_offset_delete()
    return group.subscribed_topics()


def _delete(
    runtime: ShardRuntime[GroupShard], group_id: str, topic: str, indexes: list[int]
) -> list[OffsetDeleteResponsePartition]:
    shard = runtime.shard
    subscribed = _subscribed(shard, group_id)
    used = subscribed is None or topic in subscribed
    records: list[GroupRecord] = []
    results = [
        OffsetDeleteResponsePartition(
            partition_index=index, error_code=_code(shard, group_id, topic, index, used, records)
        )
        for index in indexes
    ]
    runtime.write_in_parts(records)
    return results


def _code(
    shard: GroupShard,
    group_id: str,
    topic: str,
    index: int,
    used: bool,
    records: list[GroupRecord],
) -> ErrorCode:
    """Return the result for a partition, and add the tombstone of its offset if it has one."""
    image = shard.broker.image.topics.get(topic)
    if image is None or not 0 <= index < len(image.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if used:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    offsets = shard.offsets
    if offsets.get(group_id, topic, index) is not None or offsets.is_unstable(
        group_id, topic, index
    ):
        records.append((OffsetCommitKey(group=group_id, topic=topic, partition=index), None))
    return ErrorCode.NONE
