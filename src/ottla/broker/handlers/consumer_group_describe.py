"""ConsumerGroupDescribe, versions 0 and 1: groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.groups import check_consumer_protocol
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.broker.node import Node
from ottla.broker.response_limit import ResponseLimit
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.consumer.description import describe_consumer_group
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.runtime.combined_reply import answer_together
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)


def handle(
    node: Node, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Steps[ConsumerGroupDescribeResponse | None]:
    """Return each group, once, or an error in its place."""
    check_consumer_protocol(node)
    answers = []
    limit = ResponseLimit()
    for group_id in dict.fromkeys(request.group_ids):
        answers.append((yield from _describe(node, group_id, request, limit)))
        yield
    return answer_together(
        lambda: SlicedReply(context),
        DescribedGroup,
        answers,
        lambda groups: ConsumerGroupDescribeResponse(groups=groups),
    )


def refuse(
    request: ConsumerGroupDescribeRequest, error: ApiError, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Return the error for every group."""
    return ConsumerGroupDescribeResponse(
        groups=LazyList(lambda group_id: _refused(group_id, error), request.group_ids)
    )


def _refused(group_id: str, error: ApiError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def _describe(
    node: Node, group_id: str, request: ConsumerGroupDescribeRequest, limit: ResponseLimit
) -> Steps[tuple[ShardRuntime[GroupShard] | None, DescribedGroup]]:
    """Return the answer for one group, and the runtime whose commits it has to wait for."""
    try:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        limit.check()
        runtime = node.groups.runtime_of(group_id)
    except ApiError as error:
        return None, _refused(group_id, error)
    described = yield from describe_consumer_group(runtime.shard, group_id)
    yield from limit.add(_size, described.members)
    if described.error_code == ErrorCode.NONE and request.include_authorized_operations:
        described.authorized_operations = GROUP_OPERATIONS
    return runtime, described


def _size(member: Member) -> int:
    """Return about how many bytes a member takes in the response."""
    assigned = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    partitions = sum(len(topic.topic_name) + 4 * len(topic.partitions) for topic in assigned)
    return partitions + sum(map(len, member.subscribed_topic_names))
