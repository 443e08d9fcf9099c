"""DescribeTopicPartitions, version 0: topics in pages of partitions (KIP-966).

Topics come in the order of their names. A page ends when it has as many partitions as were
asked for; its cursor says with which topic and partition the next page begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import Final

from ottla.broker.context import RequestContext
from ottla.broker.handlers.metadata import TOPIC_OPERATIONS
from ottla.broker.node import Node
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import INTERNAL_TOPICS
from ottla.model.steps import Steps
from ottla.model.topic_names import reason_invalid
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    RequestCursor,
    ResponseCursor,
)

_NAMES_A_STEP: Final = 2000


def handle(
    node: Node, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Steps[DescribeTopicPartitionsResponse]:
    """Return one page of the topics asked for, or of all topics."""
    cursor = request.cursor or RequestCursor()
    asked: set[str] = set()
    for topic in request.topics:
        asked.add(topic.name)
        yield
    if request.cursor is not None:
        _check_cursor(cursor, asked)
    names = yield from _sorted_from(cursor.topic_name, asked or node.image.topics)
    most = node.config.network.max_request_partition_size_limit
    room = max(min(request.response_partition_limit, most), 1)
    return (yield from _page(node.image, names, cursor, room))


def refuse(
    request: DescribeTopicPartitionsRequest, error: ApiError, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Return the error for every topic."""
    return DescribeTopicPartitionsResponse(
        topics=LazyList(
            lambda topic: DescribeTopicPartitionsResponseTopic(
                name=topic.name, error_code=error.code
            ),
            request.topics,
        )
    )


def _check_cursor(cursor: RequestCursor, topics: set[str]) -> None:
    if topics and cursor.topic_name not in topics:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The topics of the request do not include that of the cursor: {cursor.topic_name}",
        )
    if cursor.partition_index < 0:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The cursor has an invalid partition: {cursor.partition_index}",
        )


def _sorted_from(first: str, names: Collection[str]) -> Steps[Iterator[str]]:
    """Return the names in order, from this one on."""
    runs: list[list[str]] = []
    rest = iter(list(names))
    while some := list(islice(rest, _NAMES_A_STEP)):
        runs.append(sorted(name for name in some if name >= first))
        yield
    return merge(*runs)


def _page(
    image: MetadataImage, names: Iterable[str], cursor: RequestCursor, room: int
) -> Steps[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    for name in names:
        yield
        first = cursor.partition_index if name == cursor.topic_name else 0
        if room == 0:
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=first)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        page = topic.partitions[first : first + room]
        room -= len(page)
        response.topics.append(_topic(image, topic, page))
        if first + len(page) < len(topic.partitions):
            response.next_cursor = ResponseCursor(
                topic_name=name, partition_index=first + len(page)
            )
            break
    return response


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    invalid = reason_invalid(name) is not None
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        error_code=(
            ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    image: MetadataImage, topic: TopicImage, partitions: Sequence[PartitionImage]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=LazyList(partial(_partition, image), partitions),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    image: MetadataImage, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.partition_id,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[
            broker_id
            for broker_id in partition.replicas
            if broker_id not in image.brokers or image.brokers[broker_id].fenced
        ],
    )
