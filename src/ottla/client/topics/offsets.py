"""ListOffsets: the earliest or latest offset, or the first at or after a timestamp."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import NO_NODE, Client
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import ConnectionLost, Unreachable
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
READ_COMMITTED = 1


class OffsetAnswer(NamedTuple):
    """An offset (NO_OFFSET if no record is that late), or an error code."""

    error_code: int
    offset: int


def list_offsets(
    client: Client,
    leaders: Mapping[TopicPartition, int],
    timestamp: int | Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, OffsetAnswer]:
    """Ask the leaders of all partitions. Return an answer for each, also if its leader is away.

    With `read_committed`, the latest offset is the last stable offset. All requests are sent
    before the first response is read, so it takes one round trip for any number of leaders.
    """
    timestamps = timestamp if isinstance(timestamp, Mapping) else dict.fromkeys(leaders, timestamp)
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        by_leader[leader].append(partition)
    missing = OffsetAnswer(ErrorCode.LEADER_NOT_AVAILABLE, NO_OFFSET)
    requests = {
        leader: _request(partitions, timestamps, read_committed)
        for leader, partitions in by_leader.items()
        if leader != NO_NODE
    }
    away = OffsetAnswer(ErrorCode.NETWORK_EXCEPTION, NO_OFFSET)
    answers = dict.fromkeys(leaders, missing)
    for leader, response in _ask_all(client, requests, deadline).items():
        found = _answers(response) if response is not None else {}
        answers |= {partition: found.get(partition, away) for partition in by_leader[leader]}
    return answers


def _request(
    partitions: Iterable[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    read_committed: bool,
) -> ListOffsetsRequest:
    by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(
            ListOffsetsPartition(
                partition_index=partition.partition, timestamp=timestamps[partition]
            )
        )
    topics = [ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=READ_COMMITTED if read_committed else 0, topics=topics
    )


def _ask_all(
    client: Client, requests: Mapping[int, ListOffsetsRequest], deadline: Deadline
) -> dict[int, ListOffsetsResponse | None]:
    """Return the response of each leader, or None if it does not answer."""
    responses: dict[int, ListOffsetsResponse | None] = dict.fromkeys(requests)
    waiting = _connections(client, requests, deadline)
    try:
        for leader in list(waiting):
            try:
                waiting[leader].send(requests[leader], deadline)
            except ConnectionLost:
                client.drop(waiting.pop(leader))
        for leader in list(waiting):
            try:
                responses[leader] = waiting[leader].receive(ListOffsetsResponse, deadline)
            except ConnectionLost:
                client.drop(waiting[leader])
            del waiting[leader]
    except BaseException:
        for connection in waiting.values():  # a response may still arrive, and nothing will read it
            client.drop(connection)
        raise
    return responses


def _connections(
    client: Client, leaders: Iterable[int], deadline: Deadline
) -> dict[int, Connection]:
    """Open connections to the leaders that can be reached, before any request is in flight."""
    connections = {}
    for leader in leaders:
        try:
            connections[leader] = client.node(leader, deadline)
        except (Unreachable, ConnectionLost):
            continue
    return connections


def _answers(response: ListOffsetsResponse) -> dict[TopicPartition, OffsetAnswer]:
    return {
        TopicPartition(topic.name, found.partition_index): OffsetAnswer(
            found.error_code, found.offset
        )
        for topic in response.topics
        for found in topic.partitions
    }
