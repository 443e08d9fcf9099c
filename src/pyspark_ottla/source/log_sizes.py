"""How many bytes an offset takes in the log of a partition, by estimate (DescribeLogDirs).

Offsets say nothing about bytes: a record may have ten bytes or ten megabytes. The size of a log
divided by its offsets is an average. It is good enough to plan batches and tasks of about a
certain size, and it costs no read of records.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from ottla.client.cluster import NO_NODE, Client
from ottla.client.errors import ClientError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from pyspark_ottla.options.offset_json import Offsets
from pyspark_ottla.source.offset_lookup import Metadata, OffsetLookup

FRESH_S = 30.0
"""How long an estimate is used before the sizes are looked up again."""
_log = logging.getLogger(__name__)


class LogSizes:
    """The estimates of one query."""

    def __init__(self, lookup: OffsetLookup) -> None:
        self._lookup = lookup
        self._bytes_per_offset: dict[TopicPartition, float] = {}
        self._asked: frozenset[TopicPartition] = frozenset()
        self._looked_up = 0.0
        self._warned = False

    def bytes_per_offset(self, metadata: Metadata, ends: Offsets) -> Mapping[TopicPartition, float]:
        """Return the average of each partition, without those whose sizes are not known."""
        is_fresh = time.monotonic() - self._looked_up < FRESH_S
        if not is_fresh or not ends.keys() <= self._asked:
            self._looked_up = time.monotonic()
            self._asked = frozenset(ends)
            self._bytes_per_offset = self._look_up(metadata, ends)
        return self._bytes_per_offset

    def _look_up(self, metadata: Metadata, ends: Offsets) -> dict[TopicPartition, float]:
        leaders = {p: found.leader for p, found in metadata.items() if p in ends}
        try:
            sizes = log_sizes(self._lookup.client, leaders)
            starts = self._lookup.earliest(set(sizes))
        except ClientError as error:
            if not self._warned:
                _log.warning(
                    "the sizes of logs are not known, so only offsets limit a batch: %s", error
                )
            self._warned = True
            return {}
        return {
            partition: sizes[partition] / max(1, ends[partition] - start)
            for partition, start in starts.items()
        }


def log_sizes(client: Client, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the size in bytes of each partition's log, as its leader reports it."""
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        by_leader[leader].append(partition)
    by_leader.pop(NO_NODE, None)
    deadline = client.deadline("looking up the sizes of logs")
    found: dict[TopicPartition, int] = {}
    for leader, partitions in by_leader.items():
        request = _request(partitions)
        connection = client.node(leader, deadline)
        response = client.call(connection, request, DescribeLogDirsResponse, deadline)
        found |= _sizes(response, frozenset(partitions))
    return found


def _request(partitions: Iterable[TopicPartition]) -> DescribeLogDirsRequest:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition.partition)
    topics = [
        DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in by_topic.items()
    ]
    return DescribeLogDirsRequest(topics=topics)


def _sizes(
    response: DescribeLogDirsResponse, wanted: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    return {
        partition: found.partition_size
        for directory in response.results
        for topic in directory.topics
        for found in topic.partitions
        if not found.is_future_key
        and (partition := TopicPartition(topic.name, found.partition_index)) in wanted
    }
