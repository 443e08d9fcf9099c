"""The assignors that run in the broker (KIP-848), by the names that members use.

An assignor gets the members, each with its subscription and its last target, and returns the
new target of each. In any case every partition of a subscribed topic goes to exactly one of the
topic's subscribers. It is a pure function: the order of the members makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.coordinator.groups.consumer.assignment import NO_PARTITIONS, Partitions


class MemberSpec(NamedTuple):
    """A member as an assignor sees it. `topics` are the ids of its subscribed topics."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    target: Partitions


PartitionCounts: TypeAlias = Mapping[bytes, int]
Assignor: TypeAlias = Callable[[Sequence[MemberSpec], PartitionCounts], dict[str, Partitions]]


def assign_uniform(members: Sequence[MemberSpec], counts: PartitionCounts) -> dict[str, Partitions]:
    """Balance the numbers of partitions, then move as few partitions as possible."""
    from ottla.coordinator.groups.consumer import uniform_assignor

    members = sorted(members)
    if all(member.topics == members[0].topics for member in members):
        return uniform_assignor.assign_alike(members, counts)
    return uniform_assignor.assign_unlike(members, counts)


def assign_range(members: Sequence[MemberSpec], counts: PartitionCounts) -> dict[str, Partitions]:
    """Assign a contiguous range of each topic to each of its subscribers.

    Static members come first, in the order of their instance ids, so that a restart does not
    shuffle them. Then come members in the order of the ranges they have, then new ones. Members
    with equal subscriptions have the same order in all topics, so that topics with the same
    number of partitions are co-partitioned.
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
    """Return a sort key by what a member has of all topics. Members come sorted by their ids."""
    if member.instance_id is not None:
        return (0, member.instance_id, 0)
    return (1, "", min(map(min, member.target.values()))) if member.target else (2, "", 0)


def _place_in_topic(member: MemberSpec, topic_id: bytes) -> tuple[int, str, int]:
    """Return a sort key by what a member has of one topic."""
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
    """Give each member its range. If the numbers are uneven, the first ones get one more."""
    share, extra = divmod(count, len(members))
    start = 0
    for position, member in enumerate(members):
        end = start + share + (position < extra)
        if start == end:
            return
        assigned[member.member_id][topic_id] = frozenset(range(start, end))
        start = end


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
