"""Looks for a key in the logs of all replicas of a partition, segment by segment.

If a topic is in the remote tier, only what brokers have on their disks is looked at here.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ottla.client.cluster import NO_NODE, Client
from ottla.client.consumer.consumer import start_offsets
from ottla.client.consumer.replica_reader import read_replica
from ottla.client.errors import ClientError
from ottla.client.topics.log_sizes import LogDescription, describe_log_dirs
from ottla.client.topics.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.client.topics.route import find_route
from ottla.client.topics.topics import PartitionDescription
from ottla.model.ids import TopicPartition


class SegmentFinding(NamedTuple):
    """What a segment has of the key. One in the remote tier has an id."""

    base_offset: int
    size: int | None
    records: int
    values: list[int]
    """The offsets of records with the key and a value."""
    tombstones: list[int]
    segment_id: str | None = None


class ReplicaFinding(NamedTuple):
    """What the log of a replica has of the key; `error` if that is not known."""

    broker: int | None
    """None for the remote tier."""
    partition: int
    segments: list[SegmentFinding]
    error: str | None = None

    @property
    def place(self) -> str:
        """The broker, or the remote tier."""
        return "the remote tier" if self.broker is None else f"broker {self.broker}"

    @property
    def values(self) -> list[int]:
        """The offsets of records with the key and a value."""
        return [offset for segment in self.segments for offset in segment.values]


def search(
    client: Client, topic: str, partition: PartitionDescription, key: bytes
) -> list[ReplicaFinding]:
    """Look for a key in each replica of a partition, up to its present end."""
    index, deadline = partition.partition, client.deadline(f"offsets of {topic}")
    ends = [
        start_offsets(client, topic, [index], timestamp, deadline)[index]
        for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    ]
    found = []
    for broker in partition.replicas:
        try:
            segments = _search_replica(client, broker, topic, index, range(*ends), key)
            found.append(ReplicaFinding(broker, index, segments))
        except ClientError as error:
            found.append(ReplicaFinding(broker, index, [], str(error)))
    return found


def _search_replica(
    client: Client, broker: int, topic: str, index: int, offsets: range, key: bytes
) -> list[SegmentFinding]:
    deadline = client.deadline(f"finding {topic}")
    route = find_route(client, topic, deadline)
    if route.leaders.get(index, NO_NODE) == NO_NODE:
        raise ClientError(f"{topic}-{index} has no leader")
    counted: list[int] = []
    values: list[int] = []
    tombstones: list[int] = []
    log = _log(client, broker, topic, index)
    if log is not None and log.segments:
        local_start = log.segments[0].base_offset
        offsets = range(max(offsets.start, local_start), offsets.stop)
    for records in read_replica(client, broker, route, index, offsets):
        for record in records:
            counted.append(record.offset)
            if record.key == key:
                (tombstones if record.value is None else values).append(record.offset)
    return _by_segment(_log(client, broker, topic, index) or log, counted, values, tombstones)


def _log(client: Client, broker: int, topic: str, index: int) -> LogDescription | None:
    """Return the log of a replica with its segments."""
    names, deadline = [TopicPartition(topic, index)], client.deadline("segments")
    for directory in describe_log_dirs(client, [broker], names, deadline, with_segments=True):
        for log in directory.logs:
            if not log.is_future:
                return log
    return None


def _by_segment(
    log: LogDescription | None, counted: list[int], values: list[int], tombstones: list[int]
) -> list[SegmentFinding]:
    """Assign offsets to segments. A broker of Kafka does not name them: then the log is one."""
    if log is None or not log.segments:
        size = None if log is None else log.size
        return [SegmentFinding(0, size, len(counted), values, tombstones)]
    bases = [segment.base_offset for segment in log.segments]

    def split(offsets: list[int]) -> list[list[int]]:
        parts: list[list[int]] = [[] for _ in bases]
        for offset in offsets:
            parts[max(bisect_right(bases, offset) - 1, 0)].append(offset)
        return parts

    return [
        SegmentFinding(segment.base_offset, segment.size, len(some), with_value, deleted)
        for segment, some, with_value, deleted in zip(
            log.segments, split(counted), split(values), split(tombstones), strict=True
        )
    ]
