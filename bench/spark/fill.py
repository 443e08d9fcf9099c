"""Fills topics fast: batches are built once and produced again and again.

Values are words of a small vocabulary, so that they can be compressed: about 2.3x with LZ4, 3.6x
with zstd. Every batch is like that of a busy producer, with about 100 KB of values.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import cycle, islice

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.errors import check
from ottla.client.topics.route import find_route
from ottla.client.topics.topics import create_topics
from ottla.records.compression import CODECS
from ottla.records.record import NewRecord, build_batch
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH_VALUE_BYTES = 100_000
DIFFERENT_BATCHES = 16
IN_FLIGHT = 4
TIMESTAMP_MS = 1_750_000_000_000
TIMEOUT_MS = 120_000


@dataclass(frozen=True)
class Topic:
    """The contents of a topic."""

    name: str
    value_bytes: int
    codec: str
    records: int
    partitions: int = 6

    @property
    def per_batch(self) -> int:
        return max(1, BATCH_VALUE_BYTES // self.value_bytes)

    @property
    def batches(self) -> int:
        """The number of batches of each partition."""
        return max(1, self.records // self.per_batch // self.partitions)

    @property
    def written(self) -> int:
        """The number of records in the topic: whole batches, the same number in each partition."""
        return self.batches * self.partitions * self.per_batch


def fill(bootstrap_servers: str, topic: Topic) -> None:
    """Create the topic and write its records."""
    with Client(parse_addresses(bootstrap_servers), timeout_ms=TIMEOUT_MS) as client:
        configs = {"retention.bytes": "-1", "retention.ms": "-1"}
        outcomes = create_topics(
            client, [topic.name], partitions=topic.partitions, replication_factor=1, configs=configs
        )
        for outcome in outcomes:
            if outcome.error is not None:
                raise RuntimeError(f"{topic.name}: {outcome.error}")
        _produce(client, topic, made_batches(topic))


def made_batches(topic: Topic) -> list[bytes]:
    """Return the batches that the topic contains again and again."""
    chance = random.Random(topic.value_bytes)
    words = [chance.randbytes(4).hex().encode() for _ in range(400)]
    return [bytes(_batch(topic, chance, words)) for _ in range(DIFFERENT_BATCHES)]


def _batch(topic: Topic, chance: random.Random, words: list[bytes]) -> bytearray:
    count = topic.value_bytes // 9 + 1
    records: list[NewRecord] = [
        (
            b"key-%05d" % chance.randrange(100_000),
            b" ".join(chance.choices(words, k=count))[: topic.value_bytes],
            TIMESTAMP_MS + number,
            (),
        )
        for number in range(topic.per_batch)
    ]
    return build_batch(records, codec=CODECS[topic.codec])


def _produce(client: Client, topic: Topic, batches: list[bytes]) -> None:
    deadline = Deadline(TIMEOUT_MS, f"filling {topic.name}")
    route = find_route(client, topic.name, deadline)
    for partition, leader in route.leaders.items():
        connection = client.node(leader, deadline)
        for batch in islice(cycle(batches), topic.batches):
            data = PartitionProduceData(index=partition, records=batch)
            content = TopicProduceData(
                name=topic.name, topic_id=route.topic_id, partition_data=[data]
            )
            request = ProduceRequest(acks=1, timeout=TIMEOUT_MS, topic_data=[content])
            connection.send(request, deadline)
            if connection.pending >= IN_FLIGHT:
                _acknowledged(connection.receive(ProduceResponse, deadline))
        while connection.pending:
            _acknowledged(connection.receive(ProduceResponse, deadline))


def _acknowledged(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            check(partition.error_code, f"{topic.name}-{partition.index}")
