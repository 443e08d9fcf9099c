"""OffsetCommit: which offsets are taken, and their records (KIP-211, KIP-848)."""

from __future__ import annotations

from ottla.coordinator.records import NO_EXPIRATION, OffsetCommitKey, OffsetCommitValue
from ottla.coordinator.serde import GroupRecord
from ottla.coordinator.shard import GroupShard
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_GROUP_ID_NOT_FOUND = 9
FIRST_TOPIC_ID = 10
_NO_RETENTION = -1
_LATEST = 2**63 - 1
_TOO_LATE = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)


def commit_offsets(
    shard: GroupShard, request: OffsetCommitRequest, version: int
) -> tuple[OffsetCommitResponse, list[GroupRecord]]:
    """The answer to a request, good once the records are committed."""
    broker = shard.broker
    metadata_limit = broker.config.offset_metadata_max_bytes
    now_ms = broker.wall_ms
    expire_timestamp = _expiration(request.retention_time, now_ms)
    group_code: ErrorCode | None = None
    records: list[GroupRecord] = []
    topics = []
    for topic in request.topics:
        image = _find(broker.image, topic, version)
        results = []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if image is None or not 0 <= index < len(image.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if image is None and version >= FIRST_TOPIC_ID:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                if group_code is None:
                    group_code = _check_group(shard, request, version)
                code = group_code
                if code in _TOO_LATE and _counts_still(shard, request, image.topic_id, index):
                    code = ErrorCode.NONE
                if code is ErrorCode.NONE:
                    if len(metadata) > metadata_limit:
                        code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                    else:
                        key = OffsetCommitKey(
                            group=request.group_id, topic=image.name, partition=index
                        )
                        value = OffsetCommitValue(
                            offset=partition.committed_offset,
                            leader_epoch=partition.committed_leader_epoch,
                            metadata=metadata,
                            commit_timestamp=now_ms,
                            expire_timestamp=expire_timestamp,
                            topic_id=image.topic_id,
                        )
                        records.append((key, value))
            results.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)
        )
    return OffsetCommitResponse(topics=topics), records


def refuse_commit(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The answer to a request of which nothing is taken."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find(image: MetadataImage, topic: OffsetCommitRequestTopic, version: int) -> TopicImage | None:
    if version >= FIRST_TOPIC_ID:
        return image.topics_by_id.get(topic.topic_id)
    return image.topics.get(topic.name)


def _check_group(shard: GroupShard, request: OffsetCommitRequest, version: int) -> ErrorCode:
    """Whether the sender may commit for the group."""
    group = shard.groups.get(request.group_id)
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return ErrorCode.NONE  # replaying the commit makes a group that only has offsets
        if version >= FIRST_GROUP_ID_NOT_FOUND:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    try:
        group.check_commit(request.member_id, request.group_instance_id, generation_id, version)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def _counts_still(
    shard: GroupShard, request: OffsetCommitRequest, topic_id: bytes, partition: int
) -> bool:
    """Whether a commit of a past generation is good for a partition the member still has."""
    group = shard.groups.get(request.group_id)
    generation_id = request.generation_id_or_member_epoch
    return group is not None and group.may_commit_late(
        request.member_id, generation_id, topic_id, partition
    )


def _expiration(retention_ms: int, now_ms: int) -> int:
    """When the offset expires if the client (of an old version) has said how long to keep it."""
    if retention_ms == _NO_RETENTION:
        return NO_EXPIRATION
    return min(max(now_ms + retention_ms, 0), _LATEST)
