"""OffsetFetch: the committed offsets of one group."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.groups.error_response import offset_fetch_error
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.records import OffsetCommitValue
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET, ZERO_UUID
from ottla.model.steps import Steps, in_steps
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def fetch_offsets(
    shard: GroupShard, request: OffsetFetchRequestGroup, *, by_id: bool, require_stable: bool
) -> Steps[OffsetFetchResponseGroup]:
    """Return the offsets of a group, those asked for or all. `by_id`: topics go by their ids."""
    group = shard.groups.get(request.group_id)
    if group is not None:
        try:
            group.check_fetch(request.member_id, request.member_epoch)
        except ApiError as error:
            return refuse_fetch(request, error.code)
    fetch = _Fetch(shard, request.group_id, by_id, require_stable)
    topics = yield from fetch.everything() if request.topics is None else fetch.asked(request)
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def refuse_fetch(request: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    """Return the answer for a group whose offsets cannot be read."""
    return OffsetFetchResponseGroup(group_id=request.group_id, error_code=offset_fetch_error(code))


class _Fetch:
    """Builds the answer for one group."""

    def __init__(self, shard: GroupShard, group_id: str, by_id: bool, require_stable: bool) -> None:
        self._offsets = shard.offsets
        self._image = shard.broker.image
        self._group_id = group_id
        self._by_id = by_id
        self._require_stable = require_stable

    def asked(self, request: OffsetFetchRequestGroup) -> Steps[list[OffsetFetchResponseTopics]]:
        assert request.topics is not None
        answers = []
        for topic in request.topics:
            yield
            name, indexes = topic.name, topic.partition_indexes
            if self._by_id:
                image = self._image.topics_by_id.get(topic.topic_id)
                if image is None:
                    partitions = yield from in_steps(
                        lambda index: _partition(index, None, ErrorCode.UNKNOWN_TOPIC_ID), indexes
                    )
                    answers.append(self._topic("", topic.topic_id, partitions))
                    continue
                name = image.name
            partitions = yield from self._partitions(name, topic.topic_id, indexes)
            answers.append(self._topic(name, topic.topic_id, partitions))
        return answers

    def everything(self) -> Steps[list[OffsetFetchResponseTopics]]:
        answers = []
        for name, offsets in list(self._offsets.by_group.get(self._group_id, {}).items()):
            yield
            topic_id = ZERO_UUID
            if self._by_id:
                image = self._image.topics.get(name)
                if image is None:
                    continue  # a topic that was deleted has no id to answer with
                topic_id = image.topic_id
            partitions = yield from self._partitions(name, topic_id, list(offsets))
            answers.append(self._topic(name, topic_id, partitions))
        return answers

    def _partitions(
        self, name: str, topic_id: bytes, indexes: Sequence[int]
    ) -> Steps[list[OffsetFetchResponsePartitions]]:
        return (yield from in_steps(lambda index: self._find(name, topic_id, index), indexes))

    def _topic(
        self, name: str, topic_id: bytes, partitions: list[OffsetFetchResponsePartitions]
    ) -> OffsetFetchResponseTopics:
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)

    def _find(self, name: str, topic_id: bytes, index: int) -> OffsetFetchResponsePartitions:
        if self._require_stable and self._offsets.is_unstable(self._group_id, name, index):
            return _partition(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self._offsets.get(self._group_id, name, index)
        if value is not None and self._by_id and value.topic_id not in (ZERO_UUID, topic_id):
            value = None  # committed for a deleted topic of the same name
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
