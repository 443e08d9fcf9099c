"""The lag of a group: its committed offsets, the log end offsets and the assigned members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.groups.members import GroupDescription, GroupMember
from ottla.client.groups.offsets import Committed, fetch_offsets
from ottla.client.topics.offsets import LATEST_TIMESTAMP, list_offsets
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition


class PartitionLag(NamedTuple):
    """One partition: its committed offset, its log end offset and its assigned member.

    None means: no committed offset; a topic that was deleted or a leader that does not answer;
    a partition that is not assigned.
    """

    partition: TopicPartition
    committed: Committed | None
    log_end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """The number of offsets from the committed offset to the log end."""
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset


def group_lag(client: Client, group: GroupDescription) -> list[PartitionLag]:
    """Return every partition with a committed offset or an assigned member, in order."""
    committed = fetch_offsets(client, group.group)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | owners.keys())
    ends = log_ends(client, partitions)
    return [
        PartitionLag(key, committed.get(key), ends.get(key), owners.get(key)) for key in partitions
    ]


def log_ends(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log end offsets of the partitions whose leaders answer."""
    deadline = client.deadline("finding the ends of the logs")
    return {
        partition: answer.offset
        for partition, answer in list_offsets(
            client, leaders_of(client, partitions, deadline), LATEST_TIMESTAMP, deadline
        ).items()
        if answer.error_code == ErrorCode.NONE
    }


def leaders_of(
    client: Client, partitions: Iterable[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Return the leaders of the partitions that exist."""
    wanted = set(partitions)
    names = sorted({partition.topic for partition in wanted})
    if not names:
        return {}
    topics = client.retry(lambda: client.metadata(names, deadline), deadline, harmless_twice=True)
    return {
        key: found.leader_id
        for topic in topics
        for found in topic.partitions
        if (key := TopicPartition(topic.name or "", found.partition_index)) in wanted
    }
