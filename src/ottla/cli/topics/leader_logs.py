"""The logs of partitions on their leaders, for `ottla topics describe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ottla.client.cluster import NO_NODE, Client
from ottla.client.errors import ClientError
from ottla.client.topics.log_sizes import LogDescription, describe_log_dirs
from ottla.client.topics.topics import TopicDescription
from ottla.model.ids import TopicPartition

LeaderLogs: TypeAlias = dict[tuple[str, int], LogDescription]


def logs_of_leaders(client: Client, topics: Sequence[TopicDescription]) -> LeaderLogs:
    """Return the logs that are known. A broker that does not answer, or refuses, is left out."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for each in topic.partitions:
            if each.leader != NO_NODE:
                name = TopicPartition(topic.name, each.partition)
                by_leader.setdefault(each.leader, []).append(name)
    found: LeaderLogs = {}
    for leader, names in by_leader.items():
        try:
            for directory in describe_log_dirs(client, [leader], names, client.deadline("sizes")):
                found.update({log.partition: log for log in directory.logs if not log.is_future})
        except ClientError:
            continue
    return found
