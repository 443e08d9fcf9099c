"""Rebalances of classic groups: from one generation to the next.

Functions here return the records that their changes need, as commands do. Timers call them by
`shard.after`, which writes what they return.
"""

from __future__ import annotations

from functools import partial

from ottla.coordinator.groups.classic.group import ClassicGroup, State
from ottla.coordinator.groups.classic.member import ClassicMember
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.runtime.shard import Command
from ottla.model.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.sync_group import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member may be parked in a join. Nobody reports that its connection is gone."""

_SHORTEST_WAIT_MS = 1000


def keep_alive(group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None) -> None:
    """Extend the member's session."""
    if timeout_ms is None:
        timeout_ms = member.session_timeout_ms
    member.deadline_ms = group.shard.broker.monotonic_ms + timeout_ms
    timer = member.timer
    if timer is not None:
        if timer.deadline_ms <= member.deadline_ms:
            return
        timer.cancel()
    member.timer = group.shard.after(timeout_ms, partial(_session_over, group, member))


def _session_over(group: ClassicGroup, member: ClassicMember) -> list[GroupRecord]:
    """Remove the member, or set its timer again if its deadline has moved."""
    member.timer = None
    if group.members.get(member.member_id) is not member or member.is_alive_without_heartbeat:
        return []
    rest_ms = member.deadline_ms - group.shard.broker.monotonic_ms
    if rest_ms > 0:
        member.timer = group.shard.after(rest_ms, partial(_session_over, group, member))
        return []
    expel(group, member)
    return go_on_without_members(group)


def expel(group: ClassicGroup, member: ClassicMember) -> None:
    """Remove the member. The requests that it has parked get UNKNOWN_MEMBER_ID."""
    code = ErrorCode.UNKNOWN_MEMBER_ID
    group.answer_join(member, JoinGroupResponse(error_code=code))
    group.answer_sync(member, SyncGroupResponse(error_code=code))
    group.remove(member.member_id)


def go_on_without_members(group: ClassicGroup) -> list[GroupRecord]:
    """Rebalance without members that are gone, or stop waiting for them in a rebalance."""
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        return prepare_rebalance(group)
    return maybe_complete_join(group)


def rebalance_or_complete(group: ClassicGroup) -> list[GroupRecord]:
    """Start a rebalance for a member that joined, or complete the one that waits for it."""
    if group.state is State.PREPARING_REBALANCE:
        return maybe_complete_join(group)
    return prepare_rebalance(group)


def prepare_rebalance(group: ClassicGroup) -> list[GroupRecord]:
    """Ask all members to join again, within their longest rebalance timeout.

    A group that was empty gets more time, in which its other members may join.
    """
    if group.state is State.COMPLETING_REBALANCE:
        refuse_sync(group, ErrorCode.REBALANCE_IN_PROGRESS)
    _stop_sync_timer(group)
    group.is_initial_rebalance = group.state is State.EMPTY
    group.state = State.PREPARING_REBALANCE
    if group.is_initial_rebalance:
        group.member_was_added = False
        delay_ms = group.shard.broker.config.groups.group_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        _wait_for_joins(
            group, delay_ms, partial(_initial_delay_over, group, delay_ms, remaining_ms)
        )
        return []
    if group.everybody_joined:
        return complete_join(group)
    _wait_for_joins(group, group.rebalance_timeout_ms, partial(complete_join, group))
    return []


def maybe_complete_join(group: ClassicGroup) -> list[GroupRecord]:
    """Complete the join if all members have joined. An initial rebalance waits for its delay."""
    if (
        group.state is State.PREPARING_REBALANCE
        and not group.is_initial_rebalance
        and group.everybody_joined
    ):
        return complete_join(group)
    return []


def complete_join(group: ClassicGroup) -> list[GroupRecord]:
    """Start the next generation with the members that joined, and with all static members."""
    _stop_join_timer(group)
    for member in list(group.members.values()):
        if member.join is None and not member.is_static:
            group.remove(member.member_id)
    if group.members and not _elect_leader(group):
        # Only static members, and none joined: wait for them, or for the end of their sessions.
        delay_ms = max(group.rebalance_timeout_ms, _SHORTEST_WAIT_MS)
        _wait_for_joins(group, delay_ms, partial(complete_join, group))
        return []
    group.generation_id += 1
    if not group.members:
        group.protocol_name = group.leader_id = None
        return [group.record({})]
    group.protocol_name = group.select_protocol()
    group.state = State.COMPLETING_REBALANCE
    group.is_initial_rebalance = False
    _send_generation(group)
    group.sync_timer = group.shard.after(
        group.rebalance_timeout_ms, partial(_sync_over, group, group.generation_id)
    )
    return []


def joined_response(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """Return the response to a member's join. The leader gets the list of all members."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=_members_for(group, member),
    )


def _members_for(group: ClassicGroup, member: ClassicMember) -> list[JoinGroupResponseMember]:
    """Return all members for the leader, who assigns to them, and nothing for others."""
    if member.member_id != group.leader_id:
        return []
    return [other.as_joined(group.protocol_name) for other in group.members.values()]


def refuse_sync(group: ClassicGroup, code: ErrorCode) -> None:
    """Answer all parked syncs with an error: this generation gets no assignment."""
    for member in group.members.values():
        member.assignment = b""
        if group.answer_sync(member, SyncGroupResponse(error_code=code)):
            keep_alive(group, member)


def _send_generation(group: ClassicGroup) -> None:
    for member in group.members.values():
        if member.join is not None:
            group.answer_join(member, joined_response(group, member))
        keep_alive(group, member)
        member.is_new = False
    group.pending_sync = set(group.members)


def _elect_leader(group: ClassicGroup) -> bool:
    """Choose a leader among the members that joined. Return False if none did."""
    assert group.leader_id is not None
    if group.members[group.leader_id].join is not None:
        return True
    joined = next((m.member_id for m in group.members.values() if m.join is not None), None)
    if joined is not None:
        group.leader_id = joined
    return joined is not None


def _initial_delay_over(group: ClassicGroup, delay_ms: int, remaining_ms: int) -> list[GroupRecord]:
    """Extend the delay as long as members keep joining, up to their rebalance timeout."""
    if not group.member_was_added or not remaining_ms:
        return complete_join(group)
    group.member_was_added = False
    next_ms = min(group.shard.broker.config.groups.group_initial_rebalance_delay_ms, remaining_ms)
    left_ms = max(remaining_ms - delay_ms, 0)
    _wait_for_joins(group, next_ms, partial(_initial_delay_over, group, next_ms, left_ms))
    return []


def _sync_over(group: ClassicGroup, generation_id: int) -> list[GroupRecord]:
    """Remove members that joined but did not ask for an assignment in time."""
    group.sync_timer = None
    in_generation = group.state in (State.COMPLETING_REBALANCE, State.STABLE)
    if not in_generation or group.generation_id != generation_id or not group.pending_sync:
        return []
    for member_id in list(group.pending_sync):
        group.remove(member_id)
    return prepare_rebalance(group)


def _wait_for_joins(group: ClassicGroup, delay_ms: int, command: Command) -> None:
    _stop_join_timer(group)
    group.join_timer = group.shard.after(delay_ms, command)


def _stop_join_timer(group: ClassicGroup) -> None:
    if group.join_timer is not None:
        group.join_timer.cancel()
        group.join_timer = None


def _stop_sync_timer(group: ClassicGroup) -> None:
    group.pending_sync.clear()
    if group.sync_timer is not None:
        group.sync_timer.cancel()
        group.sync_timer = None
