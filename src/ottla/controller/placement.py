"""Where replicas go: round-robin over the brokers, spread over racks (KIP-36).

Leaders take turns over all active brokers, from a random one on. The followers of a
partition come from the brokers after its leader, from further away with each round, and
a rack gets a second replica only when every rack has one. A fenced broker never leads and
is taken only when its rack has no active one left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.metadata.image import BrokerImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, in_steps
from ottla.ports import Random


def place(
    brokers: Iterable[BrokerImage], count: int, replication_factor: int, random: Random
) -> Steps[list[tuple[int, ...]]]:
    """Return replicas for `count` partitions, leader first; or raise INVALID_REPLICATION_FACTOR."""
    known = sorted(brokers)
    active = [broker for broker in known if broker.active]
    _check(len(known), len(active), replication_factor)
    ring = _alternate_racks(active, random)
    reserve = [broker for broker in known if not broker.active]
    start = random.below(len(ring))
    return (
        yield from in_steps(
            lambda turn: _replicas(ring, reserve, turn, replication_factor),
            range(start, start + count),
        )
    )


def _check(known: int, active: int, replication_factor: int) -> None:
    if replication_factor > known:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target"
            f" replication factor of {replication_factor} cannot be reached because only {known}"
            " broker(s) are registered.",
        )
    if not active:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are"
            " currently fenced.",
        )


def _alternate_racks(brokers: Sequence[BrokerImage], random: Random) -> list[BrokerImage]:
    """Return the brokers in an order in which neighbours are of different racks, if possible."""
    racks: dict[str, list[BrokerImage]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack or "", []).append(broker)
    queues = [_rotated(racks[name], random) for name in sorted(racks)]
    ring: list[BrokerImage] = []
    for position in range(max(len(queue) for queue in queues)):
        ring.extend(queue[position] for queue in queues if position < len(queue))
    return ring


def _rotated(brokers: list[BrokerImage], random: Random) -> list[BrokerImage]:
    start = random.below(len(brokers))
    return brokers[start:] + brokers[:start]


def _replicas(
    ring: list[BrokerImage], reserve: list[BrokerImage], turn: int, replication_factor: int
) -> tuple[int, ...]:
    leader = ring[turn % len(ring)]
    chosen = [leader.broker_id]
    used_racks = {leader.rack}
    candidates = _after(ring, turn) + reserve
    while len(chosen) < replication_factor:
        found = next((b for b in candidates if b.rack not in used_racks), None)
        if found is None:
            used_racks.clear()
            continue
        candidates.remove(found)
        chosen.append(found.broker_id)
        used_racks.add(found.rack)
    return tuple(chosen)


def _after(ring: list[BrokerImage], turn: int) -> list[BrokerImage]:
    """Return the other brokers, starting one further from the leader in every round."""
    position = turn % len(ring) + 1
    others = ring[position:] + ring[: position - 1]
    shift = (turn // len(ring)) % len(others) if others else 0
    return others[shift:] + others[:shift]
