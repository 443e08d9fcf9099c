"""The assignors against what they promise, for any members and topics."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.groups.consumer.assignment import Partitions
from ottla.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    MemberSpec,
    assign_range,
    assign_uniform,
)

TOPICS = [bytes([number]) * 16 for number in range(1, 6)]
Counts = dict[bytes, int]
Group = tuple[list[MemberSpec], Counts]


@st.composite
def partitions_of(draw: st.DrawFn, counts: Counts) -> Partitions:
    """Draw any last target, with deleted topics and with impossible or shared partitions."""
    topics = draw(st.sets(st.sampled_from(TOPICS), max_size=3))
    numbers = st.frozensets(st.integers(0, 12), min_size=1, max_size=8)
    return {topic_id: draw(numbers) for topic_id in sorted(topics)}


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> Group:
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 10), min_size=1))
    some_topics = st.frozensets(st.sampled_from(sorted(counts)))
    subscription = draw(some_topics)
    members = [
        MemberSpec(
            f"m{number}",
            draw(st.none() | st.just(f"i{number}")),
            subscription if alike else draw(some_topics),
            draw(partitions_of(counts)),
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    return members, counts


def owned(assigned: dict[str, Partitions]) -> Iterator[tuple[bytes, int, str]]:
    for member_id, topics in assigned.items():
        for topic_id, partitions in topics.items():
            assert partitions, "a topic without partitions"
            for partition in partitions:
                yield topic_id, partition, member_id


def loads(assigned: dict[str, Partitions]) -> Counter[str]:
    found = Counter(dict.fromkeys(assigned, 0))
    found.update(member_id for _, _, member_id in owned(assigned))
    return found


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_exactly_one_subscriber(group: Group, name: str) -> None:
    members, counts = group
    topics_of = {member.member_id: member.topics for member in members}
    assigned = ASSIGNORS[name](members, counts)
    assert assigned.keys() == topics_of.keys()
    pairs = [(topic_id, partition) for topic_id, partition, _ in owned(assigned)]
    wanted = {topic_id for topics in topics_of.values() for topic_id in topics}
    assert sorted(pairs) == sorted((t, p) for t in wanted for p in range(counts[t]))
    assert all(topic_id in topics_of[member_id] for topic_id, _, member_id in owned(assigned))


@given(groups(), st.sampled_from(sorted(ASSIGNORS)), st.randoms())
def test_the_order_of_members_does_not_matter(group: Group, name: str, random: object) -> None:
    members, counts = group
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ASSIGNORS[name](members, counts) == ASSIGNORS[name](shuffled, counts)


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_an_assignment_is_kept_when_nothing_changed(group: Group, name: str) -> None:
    members, counts = group
    first = ASSIGNORS[name](members, counts)
    again = [member._replace(target=first[member.member_id]) for member in members]
    assert ASSIGNORS[name](again, counts) == first


@given(groups(alike=True))
def test_uniform_is_even_and_moves_no_more_than_it_must(group: Group) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    sizes = loads(assigned)
    assert max(sizes.values()) - min(sizes.values()) <= 1

    claimed: set[tuple[bytes, int]] = set()
    could_keep = []
    for member in sorted(members):
        valid = {
            (topic_id, partition)
            for topic_id, partitions in member.target.items()
            if topic_id in member.topics
            for partition in partitions
            if partition < counts[topic_id]
        } - claimed
        claimed |= valid
        could_keep.append((member.member_id, valid))
    share, extra = divmod(sum(sizes.values()), len(members))
    most_first = sorted((len(valid) for _, valid in could_keep), reverse=True)
    must_move = sum(max(0, n - share - (i < extra)) for i, n in enumerate(most_first))
    now = {(topic_id, partition): m for topic_id, partition, m in owned(assigned)}
    moved = sum(now[pair] != member_id for member_id, valid in could_keep for pair in valid)
    assert moved == must_move


@given(groups())
def test_uniform_leaves_nothing_that_one_move_would_better(group: Group) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    sizes = loads(assigned)
    for topic_id, _, owner in owned(assigned):
        for member in members:
            if topic_id in member.topics:
                assert sizes[owner] <= sizes[member.member_id] + 1


@given(groups())
def test_range_gives_contiguous_ranges_that_differ_by_one(group: Group) -> None:
    members, counts = group
    assigned = assign_range(members, counts)
    for topic_id in counts:
        shares = [
            sorted(assigned[member.member_id].get(topic_id, ()))
            for member in members
            if topic_id in member.topics
        ]
        for share in shares:
            assert not share or share == list(range(share[0], share[-1] + 1))
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1


@given(groups(alike=True))
def test_range_co_partitions_topics_of_the_same_size(group: Group) -> None:
    members, counts = group
    assigned = assign_range(members, counts)
    for topics in assigned.values():
        by_size: dict[int, set[frozenset[int]]] = {}
        for topic_id, partitions in topics.items():
            by_size.setdefault(counts[topic_id], set()).add(partitions)
        assert all(len(shares) == 1 for shares in by_size.values())


def test_a_thousand_members_and_ten_thousand_partitions() -> None:
    topics = [number.to_bytes(16, "big") for number in range(100)]
    counts = dict.fromkeys(topics, 100)
    everything = frozenset(topics)
    alike = [MemberSpec(f"m{n:04}", None, everything, {}) for n in range(1000)]
    unlike = [MemberSpec(f"m{n:04}", None, everything - {topics[n % 10]}, {}) for n in range(1000)]
    for members in (alike, unlike):
        for assign in ASSIGNORS.values():
            took_s = seconds(lambda m=members, a=assign: keep(m, a(m, counts)))
            assert took_s < 0.5
    settled = keep(alike, assign_uniform(alike, counts))
    assert seconds(lambda: assign_uniform(settled[1:], counts)) < 0.1


def keep(members: list[MemberSpec], assigned: dict[str, Partitions]) -> list[MemberSpec]:
    return [member._replace(target=assigned[member.member_id]) for member in members]


def seconds(work: object) -> float:
    """Return the processor time of some work, without a look at what earlier tests have left."""
    gc.disable()
    try:
        start = time.process_time()
        work()  # type: ignore[operator]
        return time.process_time() - start
    finally:
        gc.enable()
