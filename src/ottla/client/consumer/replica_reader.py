"""Reads the log of one replica of a partition, from a given broker, leader or follower (KIP-392).

It sees what consumers of that broker see, records of aborted transactions included.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.client.cluster import Client
from ottla.client.connection import Connection
from ottla.client.consumer.consumer import MAX_BYTES, MAX_WAIT_MS, NO_SESSION
from ottla.client.consumer.fetched_records import read_fetched
from ottla.client.deadline import Deadline
from ottla.client.errors import ProtocolViolation, check
from ottla.client.topics.route import TopicRoute
from ottla.records.record import Record
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FIRST_FROM_FOLLOWERS = 11


def read_replica(
    client: Client,
    broker: int,
    route: TopicRoute,
    partition: int,
    offsets: range,
) -> Iterator[list[Record]]:
    """Yield the records of a replica in a range of offsets. Wait until the broker has all.

    Raise TimedOut if the broker has no more of them for too long.
    """
    name = f"reading {route.topic}-{partition} of broker {broker}"
    deadline = client.deadline(name)
    connection = client.dedicated(broker, deadline)
    try:
        position = offsets.start
        while position < offsets.stop:
            data = _fetch(connection, route, partition, position, deadline)
            if not data.records:
                if data.high_watermark >= offsets.stop:
                    return
                continue  # a follower learns the high watermark a little later
            fetched = read_fetched(data.records, route.topic, partition, position)
            position, deadline = fetched.next_offset, client.deadline(name)
            yield [record for record in fetched.records if record.offset < offsets.stop]
    finally:
        connection.close()


def _fetch(
    connection: Connection, route: TopicRoute, partition: int, offset: int, deadline: Deadline
) -> PartitionData:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
    request = FetchRequest(
        max_wait=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        session_epoch=NO_SESSION,
        topics=[FetchTopic(topic=route.topic, topic_id=route.topic_id, partitions=[asked])],
    )
    connection.send(request, deadline, at_most=route.highest_version)
    response = connection.receive(FetchResponse, deadline)
    check(response.error_code, f"fetching from {route.topic}")
    for topic in response.responses:
        for data in topic.partitions:
            check(data.error_code, f"{route.topic}-{partition}")
            return data
    raise ProtocolViolation(f"the broker did not answer for {route.topic}-{partition}")
