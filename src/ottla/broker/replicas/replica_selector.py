"""Sends consumers to a replica in their own rack (KIP-392, replica.selector.class).

The leader decides, with each fetch of a consumer that names its rack. A follower is chosen only if
it is in sync and has the offset that is asked for: a consumer that it cannot serve would come back
to the leader at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.replication.partition_leader import FollowerState, PartitionLeader

if TYPE_CHECKING:
    from ottla.broker.node import Node

THE_LEADER: Final = -1


def preferred_replica(
    node: Node, leader: PartitionLeader, rack: str, offset: int, listener: str
) -> int:
    """Return the broker from which a consumer in a rack should read; THE_LEADER if from here."""
    brokers = node.image.brokers
    own = brokers.get(node.node_id)
    if own is None or own.rack == rack:
        return THE_LEADER
    best = THE_LEADER
    best_key: tuple[int, float, int] | None = None
    for broker_id in leader.isr:
        broker, follower = brokers.get(broker_id), leader.followers.get(broker_id)
        if broker is None or follower is None or broker.fenced or broker.rack != rack:
            continue
        if not _has(follower, offset) or not any(
            endpoint.listener_name == listener for endpoint in broker.endpoints
        ):
            continue
        key = follower.log_end_offset, follower.caught_up_ms, broker_id
        if best_key is None or key > best_key:
            best, best_key = broker_id, key
    return best


def _has(follower: FollowerState, offset: int) -> bool:
    return follower.log_start_offset <= offset <= follower.log_end_offset
