"""Batches of several topics as one Produce request, and the answer to each of them.

Topics are named by id where all of them have one (KIP-516), else by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.topics.route import LAST_VERSION_WITH_NAMES, TopicRoute
from ottla.model.ids import TopicPartition
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pyspark_ottla.batches import Batch
from pyspark_ottla.sink_settings import SinkSettings


class Answer(NamedTuple):
    """What a broker said to one batch."""

    code: int
    message: str | None


def produce_request(
    settings: SinkSettings, batches: Iterable[Batch], routes: Mapping[str, TopicRoute]
) -> ProduceRequest:
    """A request with these batches, at most one of each partition."""
    by_topic: defaultdict[str, list[PartitionProduceData]] = defaultdict(list)
    for batch in batches:
        data = PartitionProduceData(index=batch.partition.partition, records=bytes(batch.data))
        by_topic[batch.partition.topic].append(data)
    return ProduceRequest(
        acks=settings.acks,
        timeout=settings.client.request_timeout_ms,
        topic_data=[
            TopicProduceData(name=topic, topic_id=routes[topic].topic_id, partition_data=data)
            for topic, data in by_topic.items()
        ],
    )


def highest_version(batches: Iterable[Batch], routes: Mapping[str, TopicRoute]) -> int | None:
    """The last version that can name all topics of these batches; None for any."""
    versions = {routes[batch.partition.topic].highest_version for batch in batches}
    return LAST_VERSION_WITH_NAMES if LAST_VERSION_WITH_NAMES in versions else None


def answers_of(
    response: ProduceResponse, routes: Mapping[str, TopicRoute]
) -> dict[TopicPartition, Answer]:
    """The answers by partition, whether the broker names topics or gives their ids."""
    by_id = {route.topic_id: topic for topic, route in routes.items()}
    return {
        TopicPartition(topic.name or by_id.get(topic.topic_id, ""), found.index): Answer(
            found.error_code, found.error_message
        )
        for topic in response.responses
        for found in topic.partition_responses
    }
