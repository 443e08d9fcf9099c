"""How far a group has come: committed offsets beside the ends of the logs and their owners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.admin.client import Client
from ottla.admin.deadline import Deadline
from ottla.admin.group_members import GroupDescription, GroupMember
from ottla.admin.group_offsets import Committed, fetch_offsets
from ottla.admin.offsets import LATEST_TIMESTAMP, list_offsets
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition


class PartitionLag(NamedTuple):
    """One partition: what is committed, where its log ends, and who reads it.

    What is not known is None: nothing committed yet, a log whose topic or leader is gone,
    a partition that nobody was given.
    """

    partition: TopicPartition
    committed: Committed | None
    log_end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """How many records there are after the committed offset."""
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset


def group_lag(client: Client, group: GroupDescription) -> list[PartitionLag]:
    """Every partition that the group has committed or been given, in order."""
    committed = fetch_offsets(client, group.group)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | owners.keys())
    ends = log_ends(client, partitions)
    return [
        PartitionLag(key, committed.get(key), ends.get(key), owners.get(key)) for key in partitions
    ]


def log_ends(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The log end offsets of those partitions whose leaders tell them."""
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
    """The leaders of those partitions that exist."""
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
