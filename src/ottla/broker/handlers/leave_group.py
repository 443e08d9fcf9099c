"""LeaveGroup, versions 0 to 5: leave a group. Several members from version 3 (KIP-345)."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.large_requests.large_leave_group import MEMBERS_A_PART, leave_in_parts, refused
from ottla.broker.node import Node
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.message import Message
from ottla.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

FIRST_BATCHED = 3


def handle(
    node: Node, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Steps[None] | None:
    """Return each member's result, once the members are removed."""
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    if len(request.members) > MEMBERS_A_PART:
        return leave_in_parts(node, request, context)
    runtime = node.groups.runtime_of(request.group_id)
    is_old = context.version < FIRST_BATCHED
    if is_old:
        request.members = [MemberIdentity(member_id=request.member_id)]
    group = runtime.shard.groups.get(request.group_id)
    if group is None:
        response = refused(request.members, ErrorCode.UNKNOWN_MEMBER_ID)
        return _as_old(response) if is_old else response
    reply: Reply = context.defer()
    if is_old:
        reply = _OldReply(reply)
    runtime.finish(group.leave(request, reply))
    return None


class _OldReply:
    """A reply whose error is that of its only member."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def send(self, response: Message) -> None:
        assert isinstance(response, LeaveGroupResponse)
        self._reply.send(_as_old(response))


def _as_old(response: LeaveGroupResponse) -> LeaveGroupResponse:
    for member in response.members:
        response.error_code = response.error_code or member.error_code
    return response
