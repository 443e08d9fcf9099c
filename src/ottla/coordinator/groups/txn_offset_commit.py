"""TxnOffsetCommit: offsets that are committed with a transaction (KIP-98, KIP-447).

The records are in the producer's transaction. They count when its marker commits them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.groups.offset_commit import CommitResults, PartitionCode, TopicPartitions
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

MAX_PENDING: Final = 10_000
"""For how many partitions of a shard a transaction may commit offsets. Its marker applies all."""


class TransactionalCommit(NamedTuple):
    """A request of any version, or a part of it."""

    version: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    producer_id: int
    producer_epoch: int
    topics: TopicPartitions


def commit_in_transaction(
    shard: GroupShard, commit: TransactionalCommit
) -> tuple[CommitResults, list[GroupRecord]]:
    """Return the results of a request, valid once the records are committed, and the records.

    Raise ApiError if the sender may not commit offsets for the group.
    """
    _check_group(shard, commit)
    limit = shard.broker.config.offsets.offset_metadata_max_bytes
    records: list[GroupRecord] = []
    answers = []
    for image, partitions in commit.topics:
        results: list[PartitionCode] = []
        answers.append(results)
        for index, offset, leader_epoch, metadata in partitions:
            code = ErrorCode.NONE
            if image is None or not 0 <= index < len(image.partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > limit:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                key = OffsetCommitKey(group=commit.group_id, topic=image.name, partition=index)
                value = OffsetCommitValue(
                    offset=offset,
                    leader_epoch=leader_epoch,
                    metadata=metadata,
                    commit_timestamp=shard.broker.wall_ms,
                    topic_id=image.topic_id,
                )
                records.append((key, value))
            results.append((index, code))
    keys = [key for key, _ in records if isinstance(key, OffsetCommitKey)]
    if shard.offsets.pending_with(commit.producer_id, keys) > MAX_PENDING:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    return CommitResults(answers), records


def _check_group(shard: GroupShard, commit: TransactionalCommit) -> None:
    """Raise ApiError unless the sender is a member in the present generation, or no member at all.

    A producer that knows nothing of the group (KIP-447) is checked by its epoch only.
    """
    group = shard.groups.get(commit.group_id)
    if group is None:
        if commit.generation_id >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return  # the replay of the commit creates the group
    try:
        group.check_commit(
            commit.member_id,
            commit.group_instance_id,
            commit.generation_id,
            commit.version,
            is_transactional=True,
        )
    except ApiError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION) from None
        raise
