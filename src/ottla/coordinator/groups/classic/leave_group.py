"""LeaveGroup: members leave, one or several at a time (KIP-345)."""

from __future__ import annotations

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.rebalance import expel, go_on_without_members
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


def leave(group: ClassicGroup, request: LeaveGroupRequest, reply: Reply) -> list[GroupRecord]:
    """Leave as Group.leave says."""
    results = [_leave(group, identity) for identity in request.members]
    group.shard.answer(reply, LeaveGroupResponse(members=results))
    if any(result.error_code == ErrorCode.NONE for result in results):
        return go_on_without_members(group)
    return []


def _leave(group: ClassicGroup, identity: MemberIdentity) -> MemberResponse:
    code = ErrorCode.NONE
    member_id, instance_id = identity.member_id, identity.group_instance_id
    try:
        if not group.forget_pending(member_id):
            if not member_id and instance_id is not None:
                # An administrator can remove a static member without knowing its member id.
                member_id = group.static_members.get(instance_id, "")
            expel(group, group.find_member(member_id, instance_id))
    except ApiError as error:
        code = error.code
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=instance_id, error_code=code
    )
