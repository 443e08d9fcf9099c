"""OffsetCommit: which offsets are accepted, and their records (KIP-211, KIP-848, KIP-1251).

This is the most frequent request to groups, so it arrives here as plain tuples and leaves as
`CommitResults`. The broker converts both from and to the bytes of each version.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import NO_EXPIRATION, OffsetCommitKey, OffsetCommitValue
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

FIRST_GROUP_ID_NOT_FOUND = 9
FIRST_TOPIC_ID = 10
_NO_RETENTION = -1
_LATEST = 2**63 - 1
_STALE = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
_LONGEST_CACHED = 256  # characters: long ids from clients must not fill the memory
_NONE = ErrorCode.NONE

PartitionCommit: TypeAlias = tuple[int, int, int, str]
"""Partition, offset, leader epoch, metadata."""

PartitionCode: TypeAlias = tuple[int, int]
"""Partition and error code."""


TopicPartitions: TypeAlias = list[tuple[TopicImage | None, list[PartitionCommit]]]
"""What is committed. A topic that does not exist is None."""

CommitHead: TypeAlias = tuple[int, str, int, str, str | None, int]
"""A request of any version, without its topics: version, group id, generation id, member id, group
instance id, expire timestamp. A plain tuple: a named one takes six times as long to make.
"""


class CommitResults(Message):
    """An error code for each partition, topic by topic in the order of the request."""

    __slots__ = ("topics",)

    def __init__(self, topics: list[list[PartitionCode]]) -> None:
        self.topics = topics

    def refuse(self, code: ErrorCode) -> CommitResults:
        """Return the same results with this error where there was none."""
        return CommitResults(
            [[(index, had or code) for index, had in results] for results in self.topics]
        )


def refuse_partitions(topics: TopicPartitions, code: ErrorCode) -> CommitResults:
    """Return the same error for all partitions: the request is refused as a whole."""
    return CommitResults(
        [[(partition[0], code) for partition in partitions] for _, partitions in topics]
    )


def commit_offsets(
    shard: GroupShard, head: CommitHead, topics: TopicPartitions
) -> tuple[CommitResults, list[GroupRecord]]:
    """Return the results of a request, valid once the records are committed, and the records."""
    broker = shard.broker
    limit = broker.config.offsets.offset_metadata_max_bytes
    now_ms = broker.wall_ms
    version, group_id, _, _, _, expire_timestamp = head
    group_code: ErrorCode | None = None
    records: list[GroupRecord] = []
    answers = []
    key_of = _cached_key if len(group_id) <= _LONGEST_CACHED else _key
    for image, partitions in topics:
        results: list[PartitionCode] = []
        answers.append(results)
        for index, offset, leader_epoch, metadata in partitions:
            if image is None or not 0 <= index < len(image.partitions):
                results.append((index, _unknown(image, version)))
                continue
            if group_code is None:
                group_code = _check_group(shard, head)
            code = group_code
            if code is not _NONE and code in _STALE:
                code = _check_stale(shard, head, image.topic_id, index, code)
            if code is _NONE:
                if len(metadata) > limit:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    value = OffsetCommitValue(
                        offset=offset,
                        leader_epoch=leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now_ms,
                        expire_timestamp=expire_timestamp,
                        topic_id=image.topic_id,
                    )
                    records.append((key_of(group_id, image.name, index), value))
            results.append((index, code))
    return CommitResults(answers), records


def expiration(retention_ms: int, now_ms: int) -> int:
    """Return when an offset expires if a client of an old version gave a retention time."""
    if retention_ms == _NO_RETENTION:
        return NO_EXPIRATION
    return min(max(now_ms + retention_ms, 0), _LATEST)


def _unknown(image: TopicImage | None, version: int) -> ErrorCode:
    if image is None and version >= FIRST_TOPIC_ID:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _check_group(shard: GroupShard, head: CommitHead) -> ErrorCode:
    """Return NONE if the sender may commit for the group, or an error."""
    version, group_id, generation_id, member_id, instance_id, _ = head
    group = shard.groups.get(group_id)
    if group is None:
        if generation_id < 0:
            return _NONE  # the replay of the commit creates the group
        if version >= FIRST_GROUP_ID_NOT_FOUND:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    try:
        group.check_commit(member_id, instance_id, generation_id, version)
    except ApiError as error:
        return error.code
    return _NONE


def _check_stale(
    shard: GroupShard, head: CommitHead, topic_id: bytes, partition: int, code: ErrorCode
) -> ErrorCode:
    """Accept a commit of an earlier epoch for a partition that the member has kept since then."""
    _, group_id, generation_id, member_id, _, _ = head
    group = shard.groups.get(group_id)
    if group is not None and group.may_commit_late(member_id, generation_id, topic_id, partition):
        return ErrorCode.NONE
    return code


def _key(group_id: str, topic: str, partition: int) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition)


_cached_key = lru_cache(maxsize=4096)(_key)
"""Returns a key that is shared by all commits of a partition, with its bytes."""
