"""OffsetFetch, versions 1 to 10: the offsets of a group. Several from version 8 (KIP-709).

Offsets that are written but not committed yet are never returned: the answer waits for them.
`require_stable` asks for that, and for an error where a transaction is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.response_limit import ResponseLimit
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.offset_fetch import fetch_offsets, refuse_fetch
from ottla.coordinator.runtime.combined_reply import answer_together
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_OFFSET
from ottla.model.steps import Steps, in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FIRST_BATCHED = 8
FIRST_TOPIC_ID = 10
FIRST_TOP_LEVEL_ERROR = 2
LAST_WITH_BOTH_ERRORS = 5
_COORDINATOR_MOVES = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""While the coordinator moves, the partitions have the error of the group too, in old versions.

aiokafka looks at those only. Kafka's response has no partitions. aiokafka takes that to mean that
nothing was ever committed, and its consumers begin at `auto_offset_reset`.
"""


def handle(
    node: Node, request: OffsetFetchRequest, context: RequestContext
) -> Steps[OffsetFetchResponse | None]:
    """Return the offsets of each group, each partition once."""
    answers = []
    limit = ResponseLimit()
    groups = yield from _groups(request, context)
    for asked in (yield from _once(groups)):
        answers.append((yield from _fetch(node, asked, request, context, limit)))
        yield

    def respond(groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
        if context.version >= FIRST_BATCHED:
            return OffsetFetchResponse(groups=groups)
        return _old_response(groups[0], request, context.version)

    return answer_together(lambda: SlicedReply(context), OffsetFetchResponseGroup, answers, respond)


def refuse(
    request: OffsetFetchRequest, error: ApiError, context: RequestContext
) -> OffsetFetchResponse:
    """Return the error for each group; in old versions for the request or its partitions."""
    if context.version >= FIRST_BATCHED:
        return OffsetFetchResponse(
            groups=LazyList(lambda asked: refuse_fetch(asked, error.code), request.groups)
        )
    asked = OffsetFetchRequestGroup(group_id=request.group_id)
    return _old_response(refuse_fetch(asked, error.code), request, context.version)


def _fetch(
    node: Node,
    asked: OffsetFetchRequestGroup,
    request: OffsetFetchRequest,
    context: RequestContext,
    limit: ResponseLimit,
) -> Steps[tuple[ShardRuntime[GroupShard] | None, OffsetFetchResponseGroup]]:
    """Return the answer for one group, and the runtime whose commits it has to wait for."""
    try:
        limit.check()
        runtime = node.groups.runtime_of(asked.group_id)
    except ApiError as error:
        return None, refuse_fetch(asked, error.code)
    fetched = yield from fetch_offsets(
        runtime.shard,
        asked,
        by_id=context.version >= FIRST_TOPIC_ID,
        require_stable=request.require_stable,
    )
    if len(request.groups) > 1:
        for topic in fetched.topics:
            yield from limit.add(_size, topic.partitions)
            yield
    return runtime, fetched


def _size(partition: OffsetFetchResponsePartitions) -> int:
    """Return about how many bytes a partition takes in the response."""
    return 20 + len(partition.metadata or "")


def _once(groups: Sequence[OffsetFetchRequestGroup]) -> Steps[list[OffsetFetchRequestGroup]]:
    """Return the groups with what is asked of them, without repetitions.

    An offset comes with metadata, which may be a thousand times as long as the question.
    """
    once: dict[str, OffsetFetchRequestGroup] = {}
    for group in groups:
        yield
        known = once.setdefault(group.group_id, group)
        if known is not group:
            if known.topics is None or group.topics is None:
                known.topics = None
            else:
                known.topics += group.topics
    for group in once.values():
        yield
        if group.topics is not None:
            group.topics = yield from _topics_once(group.topics)
    return list(once.values())


def _topics_once(
    topics: Sequence[OffsetFetchRequestTopics],
) -> Steps[list[OffsetFetchRequestTopics]]:
    once: dict[tuple[str, bytes], tuple[OffsetFetchRequestTopics, dict[int, None]]] = {}
    for topic in topics:
        _, indexes = once.setdefault((topic.name, topic.topic_id), (topic, {}))
        indexes.update(dict.fromkeys(topic.partition_indexes))
        yield
    for topic, indexes in once.values():
        topic.partition_indexes = list(indexes)
        yield
    return [topic for topic, _ in once.values()]


def _groups(
    request: OffsetFetchRequest, context: RequestContext
) -> Steps[list[OffsetFetchRequestGroup]]:
    if context.version >= FIRST_BATCHED:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = yield from in_steps(_newer, request.topics)
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _newer(topic: OffsetFetchRequestTopic) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)


def _old_response(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    """Return the response of an old version. Version 1 has errors for partitions only."""
    if group.error_code != ErrorCode.NONE and (
        version < FIRST_TOP_LEVEL_ERROR
        or (version <= LAST_WITH_BOTH_ERRORS and group.error_code in _COORDINATOR_MOVES)
    ):
        return OffsetFetchResponse(
            error_code=group.error_code if version >= FIRST_TOP_LEVEL_ERROR else ErrorCode.NONE,
            topics=LazyList(partial(_refused_topic, group.error_code), request.topics or []),
        )
    return OffsetFetchResponse(
        error_code=group.error_code, topics=LazyList(_old_topic, group.topics)
    )


def _refused_topic(code: int, topic: OffsetFetchRequestTopic) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=LazyList(partial(_refused_partition, code), topic.partition_indexes),
    )


def _refused_partition(code: int, index: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index, committed_offset=NO_OFFSET, error_code=code
    )


def _old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name, partitions=LazyList(_old_partition, topic.partitions)
    )


def _old_partition(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )
