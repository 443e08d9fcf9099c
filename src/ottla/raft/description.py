"""The quorum as DescribeQuorum shows it."""

from __future__ import annotations

from typing import NamedTuple

from ottla.raft.leader import Leader
from ottla.raft.replicas import OBSERVER_SESSION_TIMEOUT_MS, Replica
from ottla.raft.voters import Endpoint, ReplicaKey


class ReplicaDescription(NamedTuple):
    """A replica. The times are of the state machine's clock, None if not known."""

    key: ReplicaKey
    log_end_offset: int | None
    last_fetch_ms: float | None
    last_caught_up_ms: float | None


class QuorumDescription(NamedTuple):
    leader_id: int
    leader_epoch: int
    high_watermark: int | None
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    endpoints: dict[int, tuple[Endpoint, ...]]
    """Where the voters listen, by id (DescribeQuorum v2)."""


def describe(leader: Leader, now_ms: float) -> QuorumDescription:
    """Return the leader's view. The leader itself is caught up now."""
    quorum = leader.quorum
    local_id = quorum.local.key.id
    voters = []
    for replica in leader.replicas.voters.values():
        described = _replica(replica)
        if replica.key.id == local_id:
            described = ReplicaDescription(replica.key, leader.end_offset, now_ms, now_ms)
        voters.append(described)
    oldest_ms = now_ms - OBSERVER_SESSION_TIMEOUT_MS
    return QuorumDescription(
        local_id,
        quorum.epoch,
        leader.high_watermark,
        tuple(voters),
        tuple(
            _replica(replica)
            for replica in sorted(leader.replicas.observers.values(), key=lambda r: r.key.id)
            if replica.last_fetch_ms is not None and replica.last_fetch_ms > oldest_ms
        ),
        {voter.key.id: voter.endpoints for voter in quorum.voters.last.voters},
    )


def _replica(replica: Replica) -> ReplicaDescription:
    return ReplicaDescription(
        replica.key, replica.end_offset, replica.last_fetch_ms, replica.last_caught_up_ms
    )
