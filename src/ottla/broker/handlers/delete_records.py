"""DeleteRecords, versions 0 to 2: move the log start offset of partitions (KIP-107)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import INTERNAL_TOPICS
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


def handle(
    node: Node, request: DeleteRecordsRequest, context: RequestContext
) -> Steps[DeleteRecordsResponse]:
    """Return the new low watermark of each partition.

    If the request names a partition several times, the last offset counts, as in Kafka.
    """
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = asked.setdefault(topic.name, {})
        for partition in topic.partitions:
            offsets[partition.partition_index] = partition.offset
            yield
        yield
    topics = []
    for name, offsets in asked.items():
        results = []
        for index, offset in offsets.items():
            results.append(_answer(node, name, index, offset))
            yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
        yield
    return DeleteRecordsResponse(topics=topics)


def refuse(
    request: DeleteRecordsRequest, error: ApiError, context: RequestContext
) -> DeleteRecordsResponse:
    """Return the error for every partition."""
    return DeleteRecordsResponse(
        topics=LazyList(
            lambda topic: DeleteRecordsTopicResult(
                name=topic.name,
                partitions=LazyList(
                    lambda asked: _refused(asked.partition_index, error), topic.partitions
                ),
            ),
            request.topics,
        )
    )


def _refused(index: int, error: ApiError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=-1, error_code=error.code
    )


def _answer(node: Node, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = _delete(node, topic, index, offset)
    except ApiError as error:
        return _refused(index, error)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)


def _delete(node: Node, topic: str, index: int, offset: int) -> int:
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = node.topics.partition_named(topic, index)
    partition.as_leader()
    log = partition.online_log()
    if "delete" not in log.config.cleanup_policy:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    target = log.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= log.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        log.advance_log_start(target)
    except OSError as error:
        raise ApiError(*node.storage_failed(partition, error)) from error
    partition.notify()
    return log.log_start_offset
