"""DescribeGroups, versions 0 to 6: classic groups with their members."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.response_limit import ResponseLimit
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.group_listing import describe_group
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.runtime.combined_reply import answer_together
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

FIRST_NOT_FOUND = 6
# Without an authorizer all operations are allowed: one bit per AclOperation.
GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))


def handle(
    node: Node, request: DescribeGroupsRequest, context: RequestContext
) -> Steps[DescribeGroupsResponse | None]:
    """Return each group, once. A group that does not exist is dead."""
    answers = []
    limit = ResponseLimit()
    for group_id in dict.fromkeys(request.groups):
        answers.append((yield from _describe(node, group_id, request, context, limit)))
        yield
    return answer_together(
        lambda: SlicedReply(context),
        DescribedGroup,
        answers,
        lambda groups: DescribeGroupsResponse(groups=groups),
    )


def refuse(
    request: DescribeGroupsRequest, error: ApiError, context: RequestContext
) -> DescribeGroupsResponse:
    """Return the error for every group."""
    return DescribeGroupsResponse(
        groups=LazyList(lambda group_id: _refused(group_id, error), request.groups)
    )


def _refused(group_id: str, error: ApiError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def _describe(
    node: Node,
    group_id: str,
    request: DescribeGroupsRequest,
    context: RequestContext,
    limit: ResponseLimit,
) -> Steps[tuple[ShardRuntime[GroupShard] | None, DescribedGroup]]:
    """Return the answer for one group, and the runtime whose commits it has to wait for."""
    try:
        limit.check()
        runtime = node.groups.runtime_of(group_id)
    except ApiError as error:
        return None, _refused(group_id, error)
    described = yield from describe_group(runtime.shard, group_id)
    yield from limit.add(_size, described.members)
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND and context.version < FIRST_NOT_FOUND:
        described.error_code = ErrorCode.NONE
    if described.error_code == ErrorCode.NONE and request.include_authorized_operations:
        described.authorized_operations = GROUP_OPERATIONS
    return runtime, described


def _size(member: DescribedGroupMember) -> int:
    """Return about how many bytes a member takes in the response."""
    return len(member.member_metadata) + len(member.member_assignment)
