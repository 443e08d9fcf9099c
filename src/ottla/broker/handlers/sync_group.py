"""SyncGroup, versions 0 to 5: bring or get the assignment of a generation."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_PROTOCOL_REQUIRED = 5


def handle(
    node: Node, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | None:
    """Return the assignment, once it is known and committed."""
    if context.version >= FIRST_PROTOCOL_REQUIRED and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    runtime = node.groups.runtime_of(request.group_id)
    group = runtime.shard.groups.get(request.group_id)
    if group is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    runtime.finish(group.sync(request, context.defer()))
    return None
