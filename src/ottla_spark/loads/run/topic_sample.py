"""Reads a topic's offsets and a sample of its values, before Spark reads the topic."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.consumer.consumer import Consumer, start_offsets
from ottla.client.errors import ClientError
from ottla.client.topics.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.client.topics.route import find_route
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla_spark.loads.options.load_options import LoadOptions

if TYPE_CHECKING:
    from ottla.client.cluster import Client

SAMPLE_RECORDS = 2000
SAMPLE_BYTES = 16 << 20
PATIENCE_S = 10.0
POLL_MS = 200


@dataclass(frozen=True)
class TopicOffsets:
    """The earliest and latest offset of each partition, and the topic id as hex.

    The id is empty if the brokers give topics no ids.
    """

    earliest: dict[int, int]
    latest: dict[int, int]
    topic_id: str = ""

    @property
    def records(self) -> int:
        """The number of offsets in between, of all partitions."""
        return sum(end - self.earliest[partition] for partition, end in self.latest.items())


def topic_offsets(client: Client, options: LoadOptions) -> TopicOffsets:
    """Return the current offsets of a topic; raise Refused if there is no such topic.

    The latest offset is where the load can read to: the last stable offset with read_committed.
    """
    topic = options.topic
    deadline = client.deadline(f"listing the offsets of {topic}")
    route = find_route(client, topic, deadline)
    partitions = list(route.leaders)
    return TopicOffsets(
        start_offsets(client, topic, partitions, EARLIEST_TIMESTAMP, deadline),
        start_offsets(
            client,
            topic,
            partitions,
            LATEST_TIMESTAMP,
            deadline,
            read_committed=options.read_committed,
        ),
        "" if route.topic_id == ZERO_UUID else route.topic_id.hex(),
    )


def record_size(client: Client, topic: str, offsets: TopicOffsets) -> float:
    """Return the average size of a record in the topic's logs; 0 if that is not known."""
    from pyspark_ottla.source.log_sizes import log_sizes

    try:
        route = find_route(client, topic, client.deadline(f"looking up the leaders of {topic}"))
        leaders = {TopicPartition(topic, p): node for p, node in route.leaders.items()}
        sizes = log_sizes(client, leaders)
    except ClientError:
        return 0.0
    return sum(sizes.values()) / max(1, offsets.records)


def sample(client: Client, options: LoadOptions, offsets: TopicOffsets) -> list[bytes]:
    """Return some non-null values from the start and the end of each partition.

    They are values that the load will read: without those of aborted transactions, if it leaves
    them out.
    """
    busy = [p for p, end in offsets.latest.items() if end > offsets.earliest[p]]
    if not busy:
        return []
    each = max(1, SAMPLE_RECORDS // (2 * len(busy)))
    first = {p: offsets.earliest[p] for p in busy}
    last = {
        p: max(offsets.latest[p] - each, offsets.earliest[p] + each)
        for p in busy
        if offsets.latest[p] > offsets.earliest[p] + each
    }
    values = _read(client, options, first, offsets, each)
    return values + _read(client, options, last, offsets, each)


def _read(
    client: Client,
    options: LoadOptions,
    positions: dict[int, int],
    offsets: TopicOffsets,
    each: int,
) -> list[bytes]:
    """Return up to `each` values per partition, within limits of bytes and time."""
    consumer = Consumer(
        client,
        options.topic,
        positions,
        lambda *_: None,
        read_committed=options.read_committed,
    )
    left = dict.fromkeys(positions, each)
    values: list[bytes] = []
    size = 0
    deadline = time.monotonic() + PATIENCE_S
    try:
        while left and size < SAMPLE_BYTES and time.monotonic() < deadline:
            for fetched in consumer.poll(POLL_MS):
                wanted = fetched.records[: left.get(fetched.partition, 0)]
                found = [bytes(r.value) for r in wanted if r.value is not None]
                values += found
                size += sum(map(len, found))
                room = left.pop(fetched.partition, 0) - len(wanted)
                if room > 0 and fetched.next_offset < offsets.latest[fetched.partition]:
                    left[fetched.partition] = room
                else:
                    consumer.positions.pop(fetched.partition, None)
    finally:
        consumer.close()
    return values
