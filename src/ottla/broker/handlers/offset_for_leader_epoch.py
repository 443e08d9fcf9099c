"""OffsetForLeaderEpoch, versions 2 to 4: where an epoch ended in this log (KIP-101, KIP-320)."""

from __future__ import annotations

from functools import partial

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ApiError
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)


def handle(
    node: Node, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Steps[OffsetForLeaderEpochResponse]:
    """Return for each partition where the epoch ended, or the largest one before it."""

    def of_topic(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
        return OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=LazyList(partial(_answer, node, topic.topic), topic.partitions),
        )

    yield
    return OffsetForLeaderEpochResponse(topics=LazyList(of_topic, request.topics))


def refuse(
    request: OffsetForLeaderEpochRequest, error: ApiError, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Return the error for every partition."""
    return OffsetForLeaderEpochResponse(
        topics=LazyList(
            lambda topic: OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=LazyList(lambda asked: _refused(asked, error), topic.partitions),
            ),
            request.topics,
        )
    )


def _refused(asked: OffsetForLeaderPartition, error: ApiError) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=error.code, partition=asked.partition, leader_epoch=-1, end_offset=-1
    )


def _answer(node: Node, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = node.topics.partition_named(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        partition.as_leader()
        epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    except ApiError as error:
        return _refused(asked, error)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
