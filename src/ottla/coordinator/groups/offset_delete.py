"""OffsetDelete: deleting committed offsets of one group (KIP-496)."""

from __future__ import annotations

from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import OffsetCommitKey
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def delete_offsets(
    shard: GroupShard, request: OffsetDeleteRequest
) -> tuple[OffsetDeleteResponse, list[GroupRecord]]:
    """Return the response, valid once the records are committed, and the records.

    Raise ApiError if the request is refused as a whole.
    """
    group = shard.groups.get(request.group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.check_offset_delete()
    subscribed = group.subscribed_topics()
    records: list[GroupRecord] = []
    topics = []
    for topic in request.topics:
        used = subscribed is None or topic.name in subscribed
        topics.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=asked.partition_index,
                        error_code=_delete(
                            shard, request.group_id, topic, asked.partition_index, used, records
                        ),
                    )
                    for asked in topic.partitions
                ],
            )
        )
    return OffsetDeleteResponse(topics=topics), records


def _delete(
    shard: GroupShard,
    group_id: str,
    topic: OffsetDeleteRequestTopic,
    index: int,
    used: bool,
    records: list[GroupRecord],
) -> ErrorCode:
    image = shard.broker.image.topics.get(topic.name)
    if image is None or not 0 <= index < len(image.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if used:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    offsets = shard.offsets
    if offsets.get(group_id, topic.name, index) is not None or offsets.is_unstable(
        group_id, topic.name, index
    ):
        records.append((OffsetCommitKey(group=group_id, topic=topic.name, partition=index), None))
    return ErrorCode.NONE
