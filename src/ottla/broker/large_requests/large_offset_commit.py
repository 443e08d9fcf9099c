"""An OffsetCommit of many partitions, handled in slices.

What would not fit into one batch is refused as a whole, as in Kafka. The rest is committed in parts
(`offset_commit_parts`). So a part of it may fail, or be lost in a crash. The connection is parked
meanwhile: a later commit must not be overtaken.

What a part does not need any more is dropped at once, and in slices: a request may name a million
partitions, and to free as many objects would hold the loop as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.context import RequestContext
from ottla.broker.large_requests.offset_commit_parts import (
    TOPICS_A_STEP,
    Part,
    PartResults,
    Row,
    each_once,
    fit_into_one_batch,
    parts_of,
    row,
)
from ottla.coordinator.groups.offset_commit import (
    FIRST_TOPIC_ID,
    CommitHead,
    PartitionCode,
    TopicPartitions,
    commit_offsets,
    refuse_partitions,
)
from ottla.coordinator.runtime.reply import Reply
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, in_steps
from ottla.wire.discard import discard_in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def commit_in_parts(
    node: Node, request: OffsetCommitRequest, head: CommitHead, context: RequestContext
) -> Steps[None]:
    """Commit all partitions of a request. `head` has everything but them."""
    is_by_id = context.version >= FIRST_TOPIC_ID
    named = ((each.topic_id if is_by_id else each.name, each.partitions) for each in request.topics)
    topics = yield from each_once(named)
    image = node.image
    known: Mapping[Any, TopicImage] = image.topics_by_id if is_by_id else image.topics
    parts = yield from parts_of(topics, known.get)
    refusal = yield from _refusal(node, head, parts)
    if refusal is not None:
        yield from context.send_in_slices(refuse_large(request, refusal))
        yield from discard_in_steps(parts, topics, request)
        return
    rows: list[Row] = yield from in_steps(row, topics.keys(), TOPICS_A_STEP)
    yield from discard_in_steps(topics, request)
    results = PartResults(len(parts))
    for position, part in enumerate(parts):
        _commit(node, head, part.topics, results.part(position))
        part.topics.clear()
        yield
    yield from results.put_into(rows, parts)
    yield from context.send_in_slices(OffsetCommitResponse(topics=LazyList(_answered, rows)))
    yield from discard_in_steps(rows, parts, results.sent)


def _commit(node: Node, head: CommitHead, topics: TopicPartitions, reply: Reply) -> None:
    _, group_id, *_ = head
    try:
        runtime = node.groups.runtime_of(group_id)
    except ApiError as error:
        reply.send(refuse_partitions(topics, error.code))
        return
    results, records = commit_offsets(runtime.shard, head, topics)
    if records:
        runtime.shard.answer(reply, results)
        runtime.finish(records)
    else:
        reply.send(results)


def refuse_large(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Return the error for every partition of a large request."""

    def of_partition(partition: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(
            partition_index=partition.partition_index, error_code=code
        )

    def of_topic(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        return OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=LazyList(of_partition, topic.partitions),
        )

    return OffsetCommitResponse(topics=LazyList(of_topic, request.topics))


def _refusal(node: Node, head: CommitHead, parts: Sequence[Part]) -> Steps[ErrorCode | None]:
    """Return the error if the records of all parts would not fit into one batch."""
    _, group_id, *_ = head
    try:
        room = node.groups.runtime_of(group_id).shard.max_batch_bytes
    except ApiError as error:
        return error.code
    is_small = yield from fit_into_one_batch(parts, group_id, room)
    return None if is_small else ErrorCode.UNKNOWN_SERVER_ERROR


def _answered(result: Row) -> OffsetCommitResponseTopic:
    topic, codes = result
    return OffsetCommitResponseTopic(
        name=topic if isinstance(topic, str) else "",
        topic_id=topic if isinstance(topic, bytes) else bytes(16),
        partitions=LazyList(_result, codes),
    )


def _result(code: PartitionCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=code[0], error_code=code[1])
