"""DescribeLogDirs: the logs of all brokers, their sizes, and the state of their compaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.model.ids import TopicPartition
from ottla.wire.log_dirs_extension import (
    UNKNOWN,
    LogDirsPartition,
    LogDirsRequest,
    LogDirsResponse,
)
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic


class LogSegment(NamedTuple):
    """A segment of a log."""

    base_offset: int
    size: int


class LogDescription(NamedTuple):
    """A log on a broker. A broker of Apache Kafka tells only the first six fields."""

    broker: int
    directory: str
    partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool
    first_dirty_offset: int | None
    """Where the clean part ends; None if the topic is not compacted, or it is not known."""
    dirty_ratio: float | None
    """The share that is not clean of what can be cleaned; None if it is not known."""
    last_clean_ms: int | None
    """When it was last cleaned since the broker started."""
    uncleanable_reason: str | None
    segments: list[LogSegment] | None
    remote_size: int | None
    """The size of its segments in the remote tier; None if it is not tiered."""
    remote_first_dirty_offset: int | None
    """Up to where its remote part is clean; None if it has none, or is not compacted."""


class DirectoryDescription(NamedTuple):
    """A log directory of a broker."""

    broker: int
    path: str
    error_code: int
    total_bytes: int | None
    usable_bytes: int | None
    logs: list[LogDescription]


def describe_log_dirs(
    client: Client,
    brokers: Sequence[int],
    partitions: Sequence[TopicPartition] | None,
    deadline: Deadline,
    *,
    with_segments: bool = False,
) -> Iterator[DirectoryDescription]:
    """Yield the log directories of brokers with the logs of some partitions, or of all."""
    request = LogDirsRequest(
        topics=_topics(partitions), with_segments=with_segments, with_details=True
    )
    for broker in brokers:
        connection = client.node(broker, deadline)
        response = client.call(connection, request, LogDirsResponse, deadline)
        for found in response.results:
            logs = [
                _description(broker, found.log_dir, TopicPartition(topic.name, 0), each)
                for topic in found.topics
                for each in topic.partitions
            ]
            yield DirectoryDescription(
                broker,
                found.log_dir,
                found.error_code,
                _known(found.total_bytes),
                _known(found.usable_bytes),
                logs,
            )


def log_sizes(
    client: Client, partitions: Sequence[TopicPartition], deadline: Deadline
) -> dict[tuple[int, TopicPartition], int]:
    """Return the bytes of each replica, by broker and partition."""
    found = describe_log_dirs(client, list(client.brokers), partitions, deadline)
    logs = (log for directory in found for log in directory.logs if not log.is_future)
    return {(log.broker, log.partition): log.size for log in logs}


def _topics(partitions: Sequence[TopicPartition] | None) -> list[DescribableLogDirTopic] | None:
    if partitions is None:
        return None
    indexes: dict[str, list[int]] = {}
    for partition in partitions:
        indexes.setdefault(partition.topic, []).append(partition.partition)
    return [DescribableLogDirTopic(topic=name, partitions=some) for name, some in indexes.items()]


def _description(
    broker: int, directory: str, name: TopicPartition, found: object
) -> LogDescription:
    assert isinstance(found, LogDirsPartition)
    ratio = None
    if found.cleanable_bytes != UNKNOWN:
        total = found.clean_bytes + found.cleanable_bytes
        ratio = found.cleanable_bytes / total if total else 0.0
    segments = None
    if found.segments is not None:
        segments = [LogSegment(each.base_offset, each.size) for each in found.segments]
    return LogDescription(
        broker,
        directory,
        TopicPartition(name.topic, found.partition_index),
        found.partition_size,
        found.offset_lag,
        found.is_future_key,
        _known(found.first_dirty_offset),
        ratio,
        _known(found.last_clean_ms),
        found.uncleanable_reason,
        segments,
        _known(found.remote_bytes),
        _known(found.remote_first_dirty_offset),
    )


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number
