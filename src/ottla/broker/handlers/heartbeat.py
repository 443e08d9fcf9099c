"""Heartbeat, versions 0 to 4: extend the session of a member of a classic group."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(node: Node, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Return whether the member has to join again.

    The answer is sent at once, even if the state behind it is not committed yet. At worst a
    member joins once too often, or learns of a rebalance with its next heartbeat.
    """
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    try:
        runtime = node.groups.runtime_of(request.group_id)
    except ApiError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # sessions start again when the shard is loaded
        raise
    group = runtime.shard.groups.get(request.group_id)
    if group is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return HeartbeatResponse(error_code=group.heartbeat(request))
