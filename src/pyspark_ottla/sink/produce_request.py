"""Builds a Produce request of several batches, and reads the result of each batch.

Topics are named by id if all of them have one (KIP-516), otherwise by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.topics.route import LAST_VERSION_WITH_NAMES, TopicRoute
from ottla.client.transactions.transaction import LAST_PRODUCE_VERSION
from ottla.model.ids import TopicPartition
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.record_batch import Batch


class BatchResult(NamedTuple):
    """The result of one batch in a Produce response."""

    code: int
    message: str | None


def produce_request(
    settings: SinkSettings,
    batches: Iterable[Batch],
    routes: Mapping[str, TopicRoute],
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Return a request with these batches. Each partition may have only one."""
    by_topic: defaultdict[str, list[PartitionProduceData]] = defaultdict(list)
    for batch in batches:
        data = PartitionProduceData(
            index=batch.partition.partition,
            records=batch.data,  # type: ignore[arg-type]  # it is sent from there
        )
        by_topic[batch.partition.topic].append(data)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=settings.acks,
        timeout=settings.client.request_timeout_ms,
        topic_data=[
            TopicProduceData(name=topic, topic_id=routes[topic].topic_id, partition_data=data)
            for topic, data in by_topic.items()
        ],
    )


def highest_version(
    batches: Iterable[Batch], routes: Mapping[str, TopicRoute], *, transactional: bool = False
) -> int | None:
    """Return the highest version that can name all topics, or None for any version."""
    if transactional:
        return LAST_PRODUCE_VERSION
    versions = {routes[batch.partition.topic].highest_version for batch in batches}
    return LAST_VERSION_WITH_NAMES if LAST_VERSION_WITH_NAMES in versions else None


def results_of(
    response: ProduceResponse, routes: Mapping[str, TopicRoute]
) -> dict[TopicPartition, BatchResult]:
    """Return the results by partition. The broker gives names or ids of topics."""
    by_id = {route.topic_id: topic for topic, route in routes.items()}
    return {
        TopicPartition(topic.name or by_id.get(topic.topic_id, ""), found.index): BatchResult(
            found.error_code, found.error_message
        )
        for topic in response.responses
        for found in topic.partition_responses
    }
