"""Offsets of partitions by time: earliest, latest, or the first at or after a timestamp."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.admin.client import NO_NODE, Client
from ottla.admin.deadline import Deadline
from ottla.admin.errors import ConnectionLost, Unreachable
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, TopicPartition
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


class OffsetAnswer(NamedTuple):
    """An offset (NO_OFFSET when no record is as late as asked), or why there is none."""

    error_code: int
    offset: int


def list_offsets(
    client: Client, leaders: Mapping[TopicPartition, int], timestamp: int, deadline: Deadline
) -> dict[TopicPartition, OffsetAnswer]:
    """Ask every partition's leader; each partition gets an answer, even if its leader is away."""
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        by_leader[leader].append(partition)
    missing = OffsetAnswer(ErrorCode.LEADER_NOT_AVAILABLE, NO_OFFSET)
    answers = dict.fromkeys(leaders, missing)
    for leader in by_leader.keys() - {NO_NODE}:
        answers |= _ask(client, leader, by_leader[leader], timestamp, deadline)
    return answers


def _ask(
    client: Client,
    leader: int,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    deadline: Deadline,
) -> dict[TopicPartition, OffsetAnswer]:
    by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    topics = [ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    try:
        connection = client.node(leader, deadline)
        response = client.call(connection, request, ListOffsetsResponse, deadline)
    except (Unreachable, ConnectionLost):
        return dict.fromkeys(partitions, OffsetAnswer(ErrorCode.NETWORK_EXCEPTION, NO_OFFSET))
    return {
        TopicPartition(topic.name, found.partition_index): OffsetAnswer(
            found.error_code, found.offset
        )
        for topic in response.topics
        for found in topic.partitions
    }
