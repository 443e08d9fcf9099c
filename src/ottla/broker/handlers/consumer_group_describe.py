"""ConsumerGroupDescribe, versions 0 and 1: groups of the new protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.context import RequestContext
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.broker.node import Node
from ottla.coordinator.consumer.describing import describe_consumer_group
from ottla.coordinator.gathering import Gathering
from ottla.coordinator.runtime import ShardRuntime
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(
    node: Node, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | None:
    """Each group, or why not."""
    answers = [_describe(node, group_id, request) for group_id in request.group_ids]

    def respond(parts: Sequence[Message]) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[part for part in parts if isinstance(part, DescribedGroup)]
        )

    if all(runtime is None or runtime.is_settled for runtime, _ in answers):
        return respond([answer for _, answer in answers])
    gathering = Gathering(context.defer(), len(answers), respond)
    for position, (runtime, answer) in enumerate(answers):
        if runtime is None:
            gathering.add(position, answer)
        else:
            runtime.answer(gathering.part(position), answer)
    return None


def _describe(
    node: Node, group_id: str, request: ConsumerGroupDescribeRequest
) -> tuple[ShardRuntime | None, DescribedGroup]:
    """The answer for one group, and the shard for whose commits it has to wait."""
    try:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        runtime = node.groups.runtime_of(group_id)
    except ApiError as error:
        return None, DescribedGroup(
            group_id=group_id, error_code=error.code, error_message=error.message
        )
    described = describe_consumer_group(runtime.shard, group_id)
    if described.error_code == ErrorCode.NONE and request.include_authorized_operations:
        described.authorized_operations = GROUP_OPERATIONS
    return runtime, described
