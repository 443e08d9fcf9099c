"""SyncGroup: the leader brings the assignment, and members get theirs once it is committed."""

from __future__ import annotations

from ottla.coordinator.groups.classic.group import ClassicGroup, State
from ottla.coordinator.groups.classic.member import ClassicMember
from ottla.coordinator.groups.classic.rebalance import keep_alive, prepare_rebalance, refuse_sync
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(group: ClassicGroup, request: SyncGroupRequest, reply: Reply) -> list[GroupRecord]:
    """Sync as Group.sync says. Errors are sent to the reply."""
    try:
        member = _check(group, request)
    except ApiError as error:
        group.shard.answer(reply, SyncGroupResponse(error_code=error.code))
        return []
    group.pending_sync.discard(member.member_id)
    if group.state is State.STABLE:
        group.shard.answer(reply, _assigned(group, member.assignment))
        return []
    group.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync = reply
    if member.member_id != group.leader_id:
        return []
    return _assign(group, request)


def _check(group: ClassicGroup, request: SyncGroupRequest) -> ClassicMember:
    if group.state is State.EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.find_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
        None,
        group.protocol_name,
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is State.PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def _assign(group: ClassicGroup, request: SyncGroupRequest) -> list[GroupRecord]:
    """Return the record of the generation, with which the group becomes stable."""
    assignments = {item.member_id: item.assignment for item in request.assignments}
    record = group.record(assignments)
    if not group.shard.fits(record):
        refuse_sync(group, ErrorCode.UNKNOWN_SERVER_ERROR)
        return prepare_rebalance(group)
    for member in group.members.values():
        response = _assigned(group, assignments.get(member.member_id, b""))
        if group.answer_sync(member, response):
            keep_alive(group, member)
    return [record]


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )
