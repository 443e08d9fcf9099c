"""A LeaveGroup with very many members, handled in slices.

It does what several smaller requests would do, one after the other. The response waits for all of
them. A member that is named more than once leaves once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.sliced_reply import SlicedReply
from ottla.coordinator.groups.group import GroupType
from ottla.coordinator.runtime.combined_reply import combined_reply
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message
from ottla.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

MEMBERS_A_PART: Final = 20

_Identity: TypeAlias = tuple[str, str | None]
"""(member id, group instance id)."""


def leave_in_parts(node: Node, request: LeaveGroupRequest, context: RequestContext) -> Steps[None]:
    """Let the members leave, some with each step."""
    once: dict[_Identity, MemberIdentity] = {}
    places: list[tuple[_Identity, bool]] = []
    for number, member in enumerate(request.members, 1):
        identity = member.member_id, member.group_instance_id
        places.append((identity, identity in once))
        once.setdefault(identity, member)
        if not number % MEMBERS_A_PART:
            yield
    members = list(once.values())
    group = node.groups.runtime_of(request.group_id).shard.groups.get(request.group_id)
    forgets = group is None or group.TYPE is GroupType.CLASSIC

    def respond(sent: Sequence[Message]) -> Message:
        return _response(places, sent, forgets)

    starts = range(0, len(members), MEMBERS_A_PART)
    combined = combined_reply(SlicedReply(context), len(starts), respond)
    for position, start in enumerate(starts):
        part = LeaveGroupRequest(
            group_id=request.group_id, members=members[start : start + MEMBERS_A_PART]
        )
        _leave(node, part, combined.part(position))
        yield


def _leave(node: Node, request: LeaveGroupRequest, reply: Reply) -> None:
    try:
        runtime = node.groups.runtime_of(request.group_id)
    except ApiError as error:
        reply.send(refused(request.members, error.code))
        return
    group = runtime.shard.groups.get(request.group_id)
    if group is None:
        reply.send(refused(request.members, ErrorCode.UNKNOWN_MEMBER_ID))
    else:
        runtime.finish(group.leave(request, reply))


def refused(members: Sequence[MemberIdentity], code: ErrorCode) -> LeaveGroupResponse:
    """Return the same error for every member."""
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
            for member in members
        ]
    )


def _response(
    places: list[tuple[_Identity, bool]], sent: Sequence[Message], forgets: bool
) -> LeaveGroupResponse:
    """Return a result for each member of the request.

    A classic group does not know a member any more when it is named again.
    """
    codes: dict[_Identity, int] = {}
    whole = ErrorCode.NONE.value
    for part in sent:
        assert isinstance(part, LeaveGroupResponse)
        whole = whole or part.error_code
        for each in part.members:
            codes[each.member_id, each.group_instance_id] = each.error_code

    def result(place: tuple[_Identity, bool]) -> MemberResponse:
        (member_id, instance_id), is_repeated = place
        code = codes.get((member_id, instance_id), ErrorCode.UNKNOWN_MEMBER_ID)
        if is_repeated and forgets and code == ErrorCode.NONE:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)

    return LeaveGroupResponse(error_code=whole, members=LazyList(result, places))
