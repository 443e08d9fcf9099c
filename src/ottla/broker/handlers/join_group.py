"""JoinGroup, versions 0 to 9: become a member of the next generation of a group."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.groups import client_of
from ottla.broker.node import Node
from ottla.coordinator.joining import join_group
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def handle(
    node: Node, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | None:
    """The generation, once everybody has joined."""
    config = node.config
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    try:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if not shortest <= request.session_timeout <= longest:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        runtime = node.groups.runtime_of(request.group_id)
    except ApiError as error:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    join_group(runtime, request, client_of(context), context.defer())
    return None
