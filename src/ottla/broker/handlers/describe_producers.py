"""DescribeProducers, version 0: who is producing to a partition (KIP-664)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ApiError
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    node: Node, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Return the producers whose sequence numbers each partition remembers."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_answer(node, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def refuse(
    request: DescribeProducersRequest, error: ApiError, context: RequestContext
) -> DescribeProducersResponse:
    """Return the error for every partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_refused(index, error) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _refused(index: int, error: ApiError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message
    )


def _answer(node: Node, topic: str, index: int) -> PartitionResponse:
    try:
        partition = node.topics.partition_named(topic, index)
        partition.as_leader()
        log = partition.online_log()
    except ApiError as error:
        return _refused(index, error)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for producer_id, entry in log.producers.entries.items()
        ],
    )
