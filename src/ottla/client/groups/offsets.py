"""Committed offsets of groups: fetch, set and delete.

Requests use topic names. From version 10 on, OffsetCommit and OffsetFetch need topic ids, but
a deleted topic that still has committed offsets no longer has an id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.connection import Connection
from ottla.client.errors import Refused, check
from ottla.client.groups.coordinators import on_coordinator
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages import offset_commit as commit
from ottla.wire.messages import offset_delete as delete
from ottla.wire.messages import offset_fetch as fetch

LAST_VERSION_WITH_NAMES = 9
NO_GENERATION = -1
NO_LEADER_EPOCH = -1
BROKER_RETENTION = -1
_ACTIVE = "the group has members now; stop its consumers first"
_ADVICE = {
    ErrorCode.UNKNOWN_MEMBER_ID: _ACTIVE,
    ErrorCode.ILLEGAL_GENERATION: _ACTIVE,
    ErrorCode.NON_EMPTY_GROUP: _ACTIVE,
    ErrorCode.STALE_MEMBER_EPOCH: _ACTIVE,
    ErrorCode.REBALANCE_IN_PROGRESS: _ACTIVE,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a consumer of the group is subscribed to the topic",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}


class Committed(NamedTuple):
    """A committed offset, with its leader epoch and metadata."""

    offset: int
    leader_epoch: int
    metadata: str


class PartitionOutcome(NamedTuple):
    """The result for one partition of a request."""

    partition: TopicPartition
    error: Refused | None


def fetch_offsets(
    client: Client, group: str, *, require_stable: bool = False
) -> dict[TopicPartition, Committed]:
    """Return all committed offsets of a group, ordered by topic and partition.

    With `require_stable`, wait for transactions that are about to change them (KIP-447).
    """
    deadline = client.deadline(f"reading the offsets of group {group}")
    request = fetch.OffsetFetchRequest(
        group_id=group,
        topics=None,
        groups=[fetch.OffsetFetchRequestGroup(group_id=group, topics=None, member_epoch=-1)],
        require_stable=require_stable,
    )

    def ask(connection: Connection) -> dict[TopicPartition, Committed]:
        answer = client.call(
            connection,
            request,
            fetch.OffsetFetchResponse,
            deadline,
            at_most=LAST_VERSION_WITH_NAMES,
        )
        check(answer.error_code, f"the offsets of group {group}")
        for found in answer.groups:
            check(found.error_code, f"the offsets of group {group}")
        return dict(sorted(_committed(group, answer)))

    return on_coordinator(client, group, ask, deadline, harmless_twice=True)


def commit_offsets(
    client: Client, group: str, offsets: Mapping[TopicPartition, int]
) -> list[PartitionOutcome]:
    """Set the offsets of a group that has no members. The client does not join the group."""
    deadline = client.deadline(f"setting the offsets of group {group}")
    topics = [
        commit.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                commit.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offsets[TopicPartition(topic, partition)],
                    committed_leader_epoch=NO_LEADER_EPOCH,
                    committed_metadata="",
                )
                for partition in partitions
            ],
        )
        for topic, partitions in _by_topic(offsets).items()
    ]
    request = commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        retention_time=BROKER_RETENTION,
        topics=topics,
    )

    def ask(connection: Connection) -> list[PartitionOutcome]:
        answer = client.call(
            connection,
            request,
            commit.OffsetCommitResponse,
            deadline,
            at_most=LAST_VERSION_WITH_NAMES,
        )
        return [
            _outcome(group, TopicPartition(topic.name, found.partition_index), found.error_code)
            for topic in answer.topics
            for found in topic.partitions
        ]

    return on_coordinator(client, group, ask, deadline, harmless_twice=True)


def delete_offsets(
    client: Client, group: str, partitions: Iterable[TopicPartition]
) -> list[PartitionOutcome]:
    """Delete a group's offsets for topics that no member is subscribed to (KIP-496)."""
    deadline = client.deadline(f"deleting offsets of group {group}")
    topics = [
        delete.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[
                delete.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
            ],
        )
        for topic, indexes in _by_topic(partitions).items()
    ]
    request = delete.OffsetDeleteRequest(group_id=group, topics=topics)

    def ask(connection: Connection) -> list[PartitionOutcome]:
        answer = client.call(connection, request, delete.OffsetDeleteResponse, deadline)
        check(answer.error_code, f"group {group}", _advice(answer.error_code))
        return [
            _outcome(group, TopicPartition(topic.name, found.partition_index), found.error_code)
            for topic in answer.topics
            for found in topic.partitions
        ]

    return on_coordinator(client, group, ask, deadline, harmless_twice=True)


def _committed(
    group: str, answer: fetch.OffsetFetchResponse
) -> Iterable[tuple[TopicPartition, Committed]]:
    topics: list[fetch.OffsetFetchResponseTopic | fetch.OffsetFetchResponseTopics]
    topics = [*answer.topics, *(topic for found in answer.groups for topic in found.topics)]
    for topic in topics:
        for found in topic.partitions:
            key = TopicPartition(topic.name, found.partition_index)
            check(found.error_code, f"the offset of group {group} for {key}")
            if found.committed_offset >= 0:
                yield (
                    key,
                    Committed(
                        found.committed_offset, found.committed_leader_epoch, found.metadata or ""
                    ),
                )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        found[topic].append(partition)
    return dict(found)


def _outcome(group: str, partition: TopicPartition, code: int) -> PartitionOutcome:
    if code == ErrorCode.NONE:
        return PartitionOutcome(partition, None)
    error = Refused(code, f"group {group}, {partition}", _advice(code))
    if error.retriable:
        raise error  # fail the whole request: `retry` looks the coordinator up again
    return PartitionOutcome(partition, error)


def _advice(code: int) -> str | None:
    return next((text for known, text in _ADVICE.items() if known == code), None)
