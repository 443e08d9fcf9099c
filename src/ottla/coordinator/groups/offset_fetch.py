"""OffsetFetch and OffsetDelete: the offsets of one group."""

from __future__ import annotations

from ottla.coordinator.groups.error_response import for_offset_fetch
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET, ZERO_UUID
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def fetch_offsets(
    shard: GroupShard, request: OffsetFetchRequestGroup, *, by_id: bool, require_stable: bool
) -> OffsetFetchResponseGroup:
    """The offsets of a group, those asked for or all; in newer versions topics have ids."""
    group = shard.groups.get(request.group_id)
    if group is not None:
        try:
            group.check_fetch(request.member_id, request.member_epoch)
        except ApiError as error:
            return refuse_fetch(request, error.code)
    fetch = _Fetch(shard, request.group_id, by_id, require_stable)
    topics = fetch.everything() if request.topics is None else fetch.asked(request)
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def refuse_fetch(request: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    """The answer for a group whose offsets cannot be had."""
    return OffsetFetchResponseGroup(group_id=request.group_id, error_code=for_offset_fetch(code))


class _Fetch:
    """The answer for one group in the making."""

    def __init__(self, shard: GroupShard, group_id: str, by_id: bool, require_stable: bool) -> None:
        self._offsets = shard.offsets
        self._image = shard.broker.image
        self._group_id = group_id
        self._by_id = by_id
        self._require_stable = require_stable

    def asked(self, request: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
        assert request.topics is not None
        answers = []
        for topic in request.topics:
            name, indexes = topic.name, topic.partition_indexes
            if self._by_id:
                image = self._image.topics_by_id.get(topic.topic_id)
                if image is None:
                    unknown = ErrorCode.UNKNOWN_TOPIC_ID
                    partitions = [_partition(index, None, unknown) for index in indexes]
                    answers.append(self._topic("", topic.topic_id, partitions))
                    continue
                name = image.name
            partitions = [self._find(name, topic.topic_id, index) for index in indexes]
            answers.append(self._topic(name, topic.topic_id, partitions))
        return answers

    def everything(self) -> list[OffsetFetchResponseTopics]:
        answers = []
        for name, offsets in self._offsets.by_group.get(self._group_id, {}).items():
            topic_id = ZERO_UUID
            if self._by_id:
                image = self._image.topics.get(name)
                if image is None:
                    continue  # it has no id to be told by
                topic_id = image.topic_id
            partitions = [self._find(name, topic_id, index) for index in offsets]
            answers.append(self._topic(name, topic_id, partitions))
        return answers

    def _topic(
        self, name: str, topic_id: bytes, partitions: list[OffsetFetchResponsePartitions]
    ) -> OffsetFetchResponseTopics:
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)

    def _find(self, name: str, topic_id: bytes, index: int) -> OffsetFetchResponsePartitions:
        if self._require_stable and self._offsets.is_unstable(self._group_id, name, index):
            return _partition(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self._offsets.get(self._group_id, name, index)
        if value is not None and self._by_id and value.topic_id not in (ZERO_UUID, topic_id):
            value = None  # committed for an earlier topic of this name
        return _partition(index, value, ErrorCode.NONE)


def _partition(
    index: int, value: OffsetCommitValue | None, code: ErrorCode
) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NO_OFFSET,
            committed_leader_epoch=NO_LEADER_EPOCH,
            metadata="",
            error_code=code,
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def delete_offsets(
    shard: GroupShard, request: OffsetDeleteRequest
) -> tuple[OffsetDeleteResponse, list[GroupRecord]]:
    """The answer to a request, good once the records are committed; ApiError for all of it."""
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
