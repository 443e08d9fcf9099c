"""DescribeProducers, version 0: who is producing to a partition (KIP-664)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.log.state.producer_table import ProducerEntry
from ottla.model.errors import UNKNOWN_TOPIC_OR_PARTITION, ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.model.topic_names import check_topic_name
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

MOST_PRODUCERS = 200_000
"""When a response has more than this (10 MB), further partitions get an error."""


def handle(
    node: Node, request: DescribeProducersRequest, context: RequestContext
) -> Steps[DescribeProducersResponse]:
    """Return the producers whose sequence numbers each partition remembers.

    A partition that the request names several times is described once.
    """
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    listing = _Listing(node)

    def answer(topic: tuple[str, dict[int, None]]) -> TopicResponse:
        name, indexes = topic
        return TopicResponse(
            name=name,
            partitions=LazyList(lambda index: listing.answer(name, index), list(indexes)),
        )

    return DescribeProducersResponse(topics=LazyList(answer, list(asked.items())))


def refuse(
    request: DescribeProducersRequest, error: ApiError, context: RequestContext
) -> DescribeProducersResponse:
    """Return the error for every partition."""
    return DescribeProducersResponse(
        topics=LazyList(
            lambda topic: TopicResponse(
                name=topic.name,
                partitions=LazyList(lambda index: _refused(index, error), topic.partition_indexes),
            ),
            request.topics,
        )
    )


def _refused(index: int, error: ApiError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message
    )


class _Listing:
    """Lists the producers of the partitions of one request, as long as there are not too many."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._count = 0

    def answer(self, topic: str, index: int) -> PartitionResponse:
        """Return the producers of a partition, or an error."""
        try:
            check_topic_name(topic)
            if topic not in self._node.image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
            partition = self._node.topics.partition_named(topic, index)
            partition.as_leader()
            producers = partition.online_log().producers.entries
            if self._count > MOST_PRODUCERS:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"The response has more than {MOST_PRODUCERS} producers: ask for fewer"
                    " partitions",
                )
        except ApiError as error:
            return _refused(index, error)
        self._count += len(producers)
        producers = producers.copy()  # an entry is unpacked when it is encoded
        return PartitionResponse(
            partition_index=index,
            active_producers=LazyList(
                lambda producer_id: _state(producer_id, producers[producer_id]), producers
            ),
        )


def _state(producer_id: int, entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )
