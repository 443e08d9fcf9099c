"""JoinGroup, versions 0 to 9: join the next generation of a group."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.groups import client_of
from ottla.broker.node import Node
from ottla.coordinator.groups.group_creation import join_or_create_group
from ottla.coordinator.runtime.record import is_too_long
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

_LONGEST_INSTANCE_ID = 8000  # characters: it becomes part of the member id

_MOST_PROTOCOLS = 1000


def handle(
    node: Node, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | None:
    """Return the generation, once all members have joined."""
    config = node.config
    shortest, longest = (
        config.groups.group_min_session_timeout_ms,
        config.groups.group_max_session_timeout_ms,
    )
    try:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if not shortest <= request.session_timeout <= longest:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        _check_texts(request)
        runtime = node.groups.runtime_of(request.group_id)
    except ApiError as error:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    join_or_create_group(runtime, request, client_of(context), context.defer())
    return None


def _check_texts(request: JoinGroupRequest) -> None:
    """Refuse strings that do not fit into records: the member could not be stored.

    Refuse more protocols than any client has, too: each of them is looked at several times.
    """
    if len(request.protocols) > _MOST_PROTOCOLS:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if len(request.group_instance_id or "") > _LONGEST_INSTANCE_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    names = [request.protocol_type, *(protocol.name for protocol in request.protocols)]
    if any(is_too_long(name) for name in names):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
