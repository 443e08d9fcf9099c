"""Sessions of members: session timeout, rebalance timeout, and the next heartbeat.

A heartbeat costs no timer: `keep_alive` moves a deadline, and the member's one timer looks at
it when it fires.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.coordinator.groups.consumer import group_config
from ottla.coordinator.groups.consumer.current_assignment import MemberState
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.record_serde import GroupRecord

if TYPE_CHECKING:
    from ottla.coordinator.groups.consumer.group import ConsumerGroup

SOONEST_MS: Final = 500
"""The shortest heartbeat interval that a member is told."""


def keep_alive(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Extend the member's session."""
    timeout_ms = session_timeout_ms(group, member)
    member.deadline_ms = group.shard.broker.monotonic_ms + timeout_ms
    timer = member.session_timer
    if timer is not None:
        if timer.deadline_ms <= member.deadline_ms:
            return
        timer.cancel()
    member.session_timer = group.shard.after(timeout_ms, partial(_session_over, group, member))


def session_timeout_ms(group: ConsumerGroup, member: ConsumerMember) -> int:
    """Return how long a member may send no heartbeat. Classic members choose it themselves."""
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return group_config.session_timeout_ms(group.shard.broker, group.group_id)


def _session_over(group: ConsumerGroup, member: ConsumerMember) -> list[GroupRecord]:
    """Remove the member, or set its timer again if its deadline has moved."""
    member.session_timer = None
    if group.members.get(member.member_id) is not member:
        return []
    rest_ms = member.deadline_ms - group.shard.broker.monotonic_ms
    if rest_ms > 0:
        member.session_timer = group.shard.after(rest_ms, partial(_session_over, group, member))
        return []
    return _fence(group, member)


def expect_revocation(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Start the rebalance timeout of a member that must give up partitions. Called by replay.

    A classic member has it for joining and syncing: see `classic_members`.
    """
    if member.classic is not None:
        return
    stop_waiting(member)
    if member.current.state is MemberState.UNREVOKED_PARTITIONS:
        expect(group, member)


def expect(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Remove the member unless `stop_waiting` is called within its rebalance timeout."""
    if member.rebalance_timer is None:
        timeout_ms = max(0, member.metadata.rebalance_timeout_ms)
        member.rebalance_timer = group.shard.after(timeout_ms, partial(_too_slow, group, member))


def stop_waiting(member: ConsumerMember) -> None:
    """Stop the rebalance timeout: the member has done what it was asked to do."""
    if member.rebalance_timer is not None:
        member.rebalance_timer.cancel()
        member.rebalance_timer = None


def _too_slow(group: ConsumerGroup, member: ConsumerMember) -> list[GroupRecord]:
    member.rebalance_timer = None
    if group.members.get(member.member_id) is not member:
        return []
    return _fence(group, member)


def _fence(group: ConsumerGroup, member: ConsumerMember) -> list[GroupRecord]:
    from ottla.coordinator.groups.consumer.member_removal import remove

    return remove(group, [member])


def next_heartbeat_ms(group: ConsumerGroup, epoch: int) -> int:
    """Return after how long the member should send its next heartbeat.

    This is the configured interval, but less while the group changes: more members may join,
    and some wait for what others give up. Right after a change it is the shortest interval,
    and it grows while nothing changes.
    """
    broker = group.shard.broker
    interval_ms = group_config.heartbeat_interval_ms(broker, group.group_id)
    if epoch != group.epoch:  # it goes up with the records of this heartbeat
        return min(interval_ms, SOONEST_MS)
    quiet_ms = broker.monotonic_ms - group.changed_ms
    return (
        interval_ms if quiet_ms >= interval_ms else min(interval_ms, max(SOONEST_MS, int(quiet_ms)))
    )
