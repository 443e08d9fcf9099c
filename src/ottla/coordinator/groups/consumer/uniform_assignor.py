"""The uniform assignor: balance first, then stickiness (KIP-848).

If all members have the same subscription, their numbers of partitions differ by at most one,
and no more partitions move than that requires. If subscriptions differ, no partition could move
to another subscriber of its topic and make the two more equal.

What a member keeps is copied as whole sets where possible: a group of 1,000 members on 10,000
partitions is assigned in a few milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING

from ottla.coordinator.groups.consumer.assignment import Partitions

if TYPE_CHECKING:
    from ottla.coordinator.groups.consumer.assignors import MemberSpec, PartitionCounts

MAX_ROUNDS = 64
"""How often the classes of topics are balanced. Each round about halves the imbalance."""

_Topics = dict[bytes, frozenset[int]]
_topic_of = itemgetter(0)


# -- equal subscriptions -----------------------------------------------------------------


def assign_alike(members: Sequence[MemberSpec], counts: PartitionCounts) -> dict[str, Partitions]:
    """Return the assignment of members that all have the same subscription."""
    topics = sorted(members[0].topics) if members else []
    kept, left = _keep(members, counts, topics)
    share, extra = divmod(sum(counts[topic_id] for topic_id in topics), max(1, len(members)))
    sizes = [sum(map(len, topics.values())) for topics in kept]
    quotas = _quotas(sizes, share, extra)
    for position, quota in enumerate(quotas):
        if sizes[position] > quota:
            kept[position] = _give_up(kept[position], sizes[position] - quota, left)
            sizes[position] = quota
    _deal(_in_order(left), kept, [q - s for q, s in zip(quotas, sizes, strict=True)])
    return {member.member_id: kept[position] for position, member in enumerate(members)}


def _keep(
    members: Sequence[MemberSpec], counts: PartitionCounts, topics: Iterable[bytes]
) -> tuple[list[_Topics], dict[bytes, set[int]]]:
    """Return what each member can keep of its partitions, and what is left of each topic.

    Two members may claim one partition: in a group that used the classic protocol a client
    made the assignment. The first one keeps it.
    """
    left = {topic_id: set(range(counts[topic_id])) for topic_id in topics}
    kept = []
    for member in members:
        own: _Topics = {}
        for topic_id, partitions in member.target.items():
            if topic_id in member.topics:
                rest = left[topic_id]
                still = partitions if partitions <= rest else partitions & rest
                if still:
                    own[topic_id] = still
                    rest -= still
        kept.append(own)
    return kept, left


def _quotas(sizes: Sequence[int], share: int, extra: int) -> list[int]:
    """Return the number of partitions of each member. Those with most get the extra ones."""
    quotas = [share] * len(sizes)
    by_size = sorted(range(len(sizes)), key=lambda position: (-sizes[position], position))
    for position in by_size[:extra]:
        quotas[position] += 1
    return quotas


def _give_up(topics: _Topics, surplus: int, left: dict[bytes, set[int]]) -> _Topics:
    """Return the topics without `surplus` partitions, taken from the largest topic each time."""
    sizes = [(-len(partitions), topic_id) for topic_id, partitions in topics.items()]
    heapify(sizes)
    taken: dict[bytes, int] = defaultdict(int)
    for _ in range(surplus):
        size, topic_id = sizes[0]
        taken[topic_id] += 1
        heapreplace(sizes, (size + 1, topic_id))
    kept = dict(topics)
    for topic_id, number in taken.items():
        partitions = sorted(topics[topic_id])
        left[topic_id].update(partitions[-number:])
        if number < len(partitions):
            kept[topic_id] = frozenset(partitions[:-number])
        else:
            del kept[topic_id]
    return kept


def _in_order(left: Mapping[bytes, set[int]]) -> list[tuple[bytes, int]]:
    return [(topic_id, partition) for topic_id in left for partition in sorted(left[topic_id])]


def _deal(free: list[tuple[bytes, int]], kept: list[_Topics], room: list[int]) -> None:
    """Deal out free partitions in turns, so that each topic is spread over the members."""
    takers = [position for position, number in enumerate(room) if number > 0]
    hands: dict[int, dict[bytes, list[int]]] = {position: {} for position in takers}
    rest = iter(free)
    while takers:
        rounds = min(room[position] for position in takers)
        dealt = list(islice(rest, rounds * len(takers)))
        for place, position in enumerate(takers):
            for topic_id, items in groupby(dealt[place :: len(takers)], _topic_of):
                numbers = [partition for _, partition in items]
                hands[position].setdefault(topic_id, []).extend(numbers)
            room[position] -= rounds
        takers = [position for position in takers if room[position] > 0]
    for position, hand in hands.items():
        own = kept[position]
        for topic_id, partitions in hand.items():
            own[topic_id] = own.get(topic_id, frozenset()).union(partitions)


# -- different subscriptions -------------------------------------------------------------


class _Class:
    """Topics with the same subscribers: any of these can get any of their partitions.

    `held` has the partitions of each member, those it had before first.
    """

    __slots__ = ("free", "held", "subscribers")

    def __init__(self, subscribers: tuple[int, ...]) -> None:
        self.subscribers = subscribers
        self.free: list[tuple[bytes, int]] = []
        self.held: dict[int, list[tuple[bytes, int]]] = {}

    def pressure(self) -> tuple[float, int]:
        """Return a sort key: few subscribers for many partitions come first."""
        size = len(self.free) + sum(map(len, self.held.values()))
        return (-size / len(self.subscribers), len(self.subscribers))


def assign_unlike(members: Sequence[MemberSpec], counts: PartitionCounts) -> dict[str, Partitions]:
    """Return the assignment of members with different subscriptions."""
    class_of = _classes(members)
    kept, left = _keep(members, counts, sorted(class_of))
    for position, topics in enumerate(kept):
        for topic_id, partitions in topics.items():
            held = class_of[topic_id].held.setdefault(position, [])
            held.extend((topic_id, partition) for partition in sorted(partitions))
    for topic_id, partition in _in_order(left):
        class_of[topic_id].free.append((topic_id, partition))
    loads = [sum(map(len, topics.values())) for topics in kept]
    classes = sorted(dict.fromkeys(class_of.values()), key=_Class.pressure)
    for topics_alike in classes:
        _hand_out(topics_alike, loads)
    for _ in range(MAX_ROUNDS):
        least = min(loads)
        if sum(_even_out(topics_alike, loads, least) for topics_alike in classes) == 0:
            break
    return _collect(members, classes, kept)


def _classes(members: Sequence[MemberSpec]) -> dict[bytes, _Class]:
    subscribers: dict[bytes, list[int]] = defaultdict(list)
    for position, member in enumerate(members):
        for topic_id in member.topics:
            subscribers[topic_id].append(position)
    found: dict[tuple[int, ...], _Class] = {}
    class_of = {}
    for topic_id in sorted(subscribers):
        key = tuple(subscribers[topic_id])
        if key not in found:
            found[key] = _Class(key)
        class_of[topic_id] = found[key]
    return class_of


def _hand_out(topics: _Class, loads: list[int]) -> None:
    """Give each free partition to the subscriber with the fewest partitions."""
    heap = [(loads[position], position) for position in topics.subscribers]
    heapify(heap)
    for item in topics.free:
        load, position = heap[0]
        topics.held.setdefault(position, []).append(item)
        loads[position] = load + 1
        heapreplace(heap, (load + 1, position))
    topics.free.clear()


def _even_out(topics: _Class, loads: list[int], least: int) -> bool:
    """Move partitions from the member with most to the one with least while that helps."""
    givers = [(-loads[position], position) for position, held in topics.held.items() if held]
    if not givers or -min(givers)[0] <= least + 1:
        return False
    heapify(givers)
    takers = [(loads[position], position) for position in topics.subscribers]
    heapify(takers)
    moved = False
    while givers:
        most, giver = givers[0]
        load, taker = takers[0]
        if load != loads[taker]:  # it has given since then
            heapreplace(takers, (loads[taker], taker))
        elif -most != loads[giver]:  # it has taken since then
            heapreplace(givers, (-loads[giver], giver))
        elif -most <= load + 1:
            break
        else:
            moved = True
            held = topics.held[giver]
            topics.held.setdefault(taker, []).append(held.pop())
            loads[giver] -= 1
            loads[taker] += 1
            heapreplace(takers, (loads[taker], taker))
            if held:
                heapreplace(givers, (-loads[giver], giver))
            else:
                heappop(givers)
            if len(topics.held[taker]) == 1:
                heappush(givers, (-loads[taker], taker))
    return moved


def _collect(
    members: Sequence[MemberSpec], classes: Iterable[_Class], kept: Sequence[_Topics]
) -> dict[str, Partitions]:
    hands: list[dict[bytes, list[int]]] = [{} for _ in members]
    for topics in classes:
        for position, held in topics.held.items():
            hand = hands[position]
            for topic_id, partition in held:
                hand.setdefault(topic_id, []).append(partition)
    assigned: dict[str, Partitions] = {}
    for position, member in enumerate(members):
        made = {topic_id: frozenset(numbers) for topic_id, numbers in hands[position].items()}
        assigned[member.member_id] = kept[position] if made == kept[position] else made
    return assigned
