"""JoinGroup: who may join, and when that causes a rebalance (KIP-62, KIP-345, KIP-394).

A dynamic member without an id gets one first and must join again with it, so that a client
that gives up leaves only the id behind. A static member is known by its instance id. If it
returns without its member id, it replaces its earlier self. If that does not change the chosen
protocol, the others do not notice.
"""

from __future__ import annotations

from functools import partial

from ottla.coordinator.groups.classic.group import ClassicGroup, State
from ottla.coordinator.groups.classic.member import (
    ClassicMember,
    protocols_of,
    rebalance_timeout_of,
)
from ottla.coordinator.groups.classic.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    joined_response,
    keep_alive,
    maybe_complete_join,
    prepare_rebalance,
    rebalance_or_complete,
)
from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.member_memory import member_bytes
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse

FIRST_MEMBER_ID_REQUIRED = 4
FIRST_SKIP_ASSIGNMENT = 9


def join(
    group: ClassicGroup, request: JoinGroupRequest, client: Client, reply: Reply
) -> list[GroupRecord]:
    """Join as Group.join says. Errors are sent to the reply."""
    try:
        if not _has_room(group, request.member_id):
            group.forget_pending(request.member_id)
            group.remove(request.member_id)
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, protocols_of(request)):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group.check_memory(_more_memory(group, request))
        if request.member_id:
            return _join_again(group, request, client, reply)
        return _join_anew(group, request, client, reply)
    except ApiError as error:
        member_id = request.member_id
        if error.code is ErrorCode.GROUP_MAX_SIZE_REACHED:
            member_id = ""
        group.shard.answer(reply, JoinGroupResponse(error_code=error.code, member_id=member_id))
        return maybe_complete_join(group)


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Return True if group.max.size allows this member.

    In a rebalance only members that have joined count, so that a group which is too large
    loses the last ones to join.
    """
    limit = group.shard.broker.config.groups.group_max_size
    member = group.members.get(member_id)
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING_REBALANCE:
        return (member is not None and member.join is not None) or group.joined < limit
    return member is not None or len(group.members) < limit


def _more_memory(group: ClassicGroup, request: JoinGroupRequest) -> int:
    """Return how much more memory the group takes with what a member says about itself now."""
    known_id = request.member_id
    if not known_id and request.group_instance_id is not None:
        known_id = group.static_members.get(request.group_instance_id, "")
    member = group.members.get(known_id)
    texts = [protocol.name for protocol in request.protocols]
    needed = member_bytes([*texts, *(protocol.metadata for protocol in request.protocols)])
    return needed if member is None else needed - member.memory_bytes


def _join_anew(
    group: ClassicGroup, request: JoinGroupRequest, client: Client, reply: Reply
) -> list[GroupRecord]:
    """Join with no member id, because the member is new or has lost its id."""
    instance_id = request.group_instance_id
    new_id = group.shard.new_member_id(instance_id or client.client_id)
    if instance_id is not None:
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            return _add(group, new_id, request, client, reply)
        return _replace_static(group, old_id, new_id, request, client, reply)
    if client.version < FIRST_MEMBER_ID_REQUIRED:
        return _add(group, new_id, request, client, reply)
    timer = group.shard.after(request.session_timeout, partial(_pending_over, group, new_id))
    group.add_pending(new_id, timer)
    group.shard.answer(
        reply, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id)
    )
    return []


def _pending_over(group: ClassicGroup, member_id: str) -> list[GroupRecord]:
    """Drop a member id that was given out: nobody joined with it in time."""
    group.forget_pending(member_id)
    return maybe_complete_join(group)


def _add(
    group: ClassicGroup, member_id: str, request: JoinGroupRequest, client: Client, reply: Reply
) -> list[GroupRecord]:
    if not group.members:
        group.protocol_type = request.protocol_type
    member = ClassicMember.joining(member_id, request, client)
    group.member_was_added = group.is_initial_rebalance
    group.add(member, reply)
    keep_alive(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    return rebalance_or_complete(group)


def _join_again(
    group: ClassicGroup, request: JoinGroupRequest, client: Client, reply: Reply
) -> list[GroupRecord]:
    """Join with a member id: a new member that was given one, or a member that rejoins."""
    member_id = request.member_id
    if member_id in group.pending_members and request.group_instance_id is None:
        return _add(group, member_id, request, client, reply)
    member = group.find_member(member_id, request.group_instance_id)
    if group.state is State.EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    protocols = protocols_of(request)
    leads = group.leader_id == member_id
    if (
        group.state is State.PREPARING_REBALANCE
        or (group.state is State.STABLE and leads)  # only a leader notices new partitions
        or not member.matches(protocols)
    ):
        _update(group, member, request, client)
        group.set_join(member, reply)
        return rebalance_or_complete(group)
    # It missed the response to its join: send it again.
    response = joined_response(group, member)
    if group.state is State.STABLE:
        response.members = []
    group.shard.answer(reply, response)
    return []


def _update(
    group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, client: Client
) -> None:
    group.update(
        member,
        protocols_of(request),
        rebalance_timeout_of(request, client.version),
        request.session_timeout,
    )


def _replace_static(
    group: ClassicGroup,
    old_id: str,
    new_id: str,
    request: JoinGroupRequest,
    client: Client,
    reply: Reply,
) -> list[GroupRecord]:
    """Replace a static member that returns under a new id. Its old id is fenced."""
    old_leader = group.leader_id
    member = _take_place(group, old_id, new_id)
    _update(group, member, request, client)
    keep_alive(group, member)
    if group.state is State.STABLE and group.select_protocol() == group.protocol_name:
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        record = group.record(assignments)
        if group.shard.fits(record):
            group.shard.answer(reply, _unchanged_response(group, member, old_leader, client))
            return [record]
    group.set_join(member, reply)
    if group.state is State.PREPARING_REBALANCE:
        return maybe_complete_join(group)
    return prepare_rebalance(group)


def _take_place(group: ClassicGroup, old_id: str, new_id: str) -> ClassicMember:
    """Give a static member another id, and answer requests that are parked under the old one."""
    old = group.members[old_id]
    code = ErrorCode.FENCED_INSTANCE_ID
    group.answer_join(old, JoinGroupResponse(error_code=code, member_id=old_id))
    group.answer_sync(old, SyncGroupResponse(error_code=code))
    leads = group.leader_id == old_id
    group.remove(old_id)
    member = ClassicMember(
        new_id,
        old.group_instance_id,
        old.client_id,
        old.client_host,
        old.rebalance_timeout_ms,
        old.session_timeout_ms,
        old.protocols,
        old.assignment,
    )
    group.add(member)
    if leads:
        group.leader_id = new_id
    return member


def _unchanged_response(
    group: ClassicGroup, member: ClassicMember, old_leader: str | None, client: Client
) -> JoinGroupResponse:
    """Return the response for a generation that continues (KIP-814).

    The leader must not assign anything. Versions that cannot say so are told that the old
    member id leads, so that this member does not.
    """
    response = joined_response(group, member)
    if client.version >= FIRST_SKIP_ASSIGNMENT:
        response.skip_assignment = group.leader_id == member.member_id
    else:
        response.leader = old_leader or ""
        response.members = []
    return response
