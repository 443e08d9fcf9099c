"""The assignors that run in the broker (KIP-848), by the name a member asks for them.

An assignor takes the members with what each is subscribed to and had as its last target,
and says what each is to have now. Whatever it is given, every partition of a subscribed
topic goes to exactly one member that is subscribed to it. It is a pure function: the same
members in another order get the same partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.coordinator.groups.consumer.assignment import NO_PARTITIONS, Partitions


class MemberSpec(NamedTuple):
    """A member as an assignor sees it. `topics` are the ids of those it subscribes to."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: Partitions


PartitionCounts: TypeAlias = Mapping[bytes, int]
Assignor: TypeAlias = Callable[[Sequence[MemberSpec], PartitionCounts], dict[str, Partitions]]


def assign_uniform(members: Sequence[MemberSpec], counts: PartitionCounts) -> dict[str, Partitions]:
    """As many partitions for each as can be, then as few moves as can be."""
    from ottla.coordinator.groups.consumer import uniform_assignor

    members = sorted(members)
    if all(member.topics == members[0].topics for member in members):
        return uniform_assignor.assign_alike(members, counts)
    return uniform_assignor.assign_unlike(members, counts)


def assign_range(members: Sequence[MemberSpec], counts: PartitionCounts) -> dict[str, Partitions]:
    """A contiguous range of each topic for each of its subscribers.

    Static members come first, in the order of their instance ids, so that a restart does not
    shuffle them; then members in the order of the ranges they have; then new ones. Members
    that are subscribed alike stand in the same order for all topics, so that topics with the
    same number of partitions are co-partitioned.
    """
    members = sorted(members)
    alike = all(member.topics == members[0].topics for member in members)
    subscribers: dict[bytes, list[MemberSpec]] = {topic_id: [] for topic_id in counts}
    for member in sorted(members, key=_place) if alike else members:
        for topic_id in member.topics:
            subscribers[topic_id].append(member)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {m.member_id: {} for m in members}
    for topic_id, ordered in subscribers.items():
        if not alike:
            ordered.sort(key=lambda member: _place_in_topic(member, topic_id))
        if ordered:
            _cut(topic_id, counts[topic_id], ordered, assigned)
    return {member_id: topics or NO_PARTITIONS for member_id, topics in assigned.items()}


def _place(member: MemberSpec) -> tuple[int, str, int]:
    """Where a member stands by what it has of all topics; members come sorted by their ids."""
    if member.instance_id is not None:
        return (0, member.instance_id, 0)
    return (1, "", min(map(min, member.target.values()))) if member.target else (2, "", 0)


def _place_in_topic(member: MemberSpec, topic_id: bytes) -> tuple[int, str, int]:
    """Where a member stands by what it has of one topic."""
    if member.instance_id is not None:
        return (0, member.instance_id, 0)
    partitions = member.target.get(topic_id)
    return (1, "", min(partitions)) if partitions else (2, "", 0)


def _cut(
    topic_id: bytes,
    count: int,
    members: list[MemberSpec],
    assigned: dict[str, dict[bytes, frozenset[int]]],
) -> None:
    """Give each of the members its range; where that is uneven the first get one more."""
    share, extra = divmod(count, len(members))
    start = 0
    for position, member in enumerate(members):
        end = start + share + (position < extra)
        if start == end:
            return
        assigned[member.member_id][topic_id] = frozenset(range(start, end))
        start = end


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
