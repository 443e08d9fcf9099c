"""Ranges split and packed into tasks, and limits of triggers: each offset exactly once."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.ids import ZERO_UUID, TopicPartition
from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.source.task_plan import (
    CORES,
    FEW_TASKS,
    LARGE_TASK,
    MEDIUM_TASK,
    SMALL_TASK,
    TaskBytes,
    plan_tasks,
    size_of,
    split_ranges,
    task_count,
)
from pyspark_ottla.source.trigger_limits import TriggerDelay, limit_bytes, limit_offsets

Sizes = list[tuple[int, int]]
SIZES = st.lists(
    st.tuples(st.integers(0, 10**12), st.one_of(st.integers(-5, 50), st.integers(0, 10**9))),
    max_size=12,
)


def ranges_of(sizes: Sizes) -> list[OffsetRange]:
    return [
        OffsetRange("t", ZERO_UUID, partition, start, start + size)
        for partition, (start, size) in enumerate(sizes)
    ]


def assert_covered(wanted: list[OffsetRange], pieces: list[OffsetRange]) -> None:
    """Check that the pieces of each partition cover it from start to end, without overlap."""
    for whole in wanted:
        own = sorted(
            (piece for piece in pieces if piece.partition == whole.partition),
            key=lambda piece: piece.start,
        )
        assert all(size_of(piece) > 0 for piece in own)
        if size_of(whole) <= 0:
            assert own == []
            continue
        assert [own[0].start, own[-1].end] == [whole.start, whole.end]
        assert all(a.end == b.start for a, b in pairwise(own))


@settings(deadline=None)
@given(SIZES, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 10**9)))
def test_ranges_are_covered_exactly_however_they_are_cut(
    sizes: Sizes, min_partitions: int | None, most: int | None
) -> None:
    wanted = ranges_of(sizes)
    if most is not None:
        most = max(most, sum(max(size, 0) for _, size in sizes) // 500)  # not a million pieces
        most = max(most, 1)
    pieces = split_ranges(wanted, min_partitions, most)
    assert_covered(wanted, pieces)
    if most is not None:
        assert all(size_of(piece) <= most for piece in pieces)


@settings(deadline=None)
@given(SIZES, st.one_of(st.none(), st.integers(1, 40)))
def test_tasks_have_every_range_once(sizes: Sizes, min_partitions: int | None) -> None:
    wanted = ranges_of(sizes)
    tasks = plan_tasks(wanted, min_partitions, None)
    pieces = [piece for task in tasks for piece in task.ranges]
    assert_covered(wanted, pieces)
    assert len(tasks) <= max(len(pieces), 1)
    assert all(task.ranges for task in tasks)


def test_nothing_to_read_is_no_task() -> None:
    assert plan_tasks(ranges_of([(5, 0), (7, -2)]), 3, 10) == []


def test_no_range_is_cut_unless_asked() -> None:
    (task,) = plan_tasks(ranges_of([(0, 10**9)]), None, None)
    assert task.ranges == tuple(ranges_of([(0, 10**9)]))


def test_small_ranges_share_a_task_and_large_ones_have_their_own() -> None:
    assert len(plan_tasks(ranges_of([(0, 10)] * 50), None, None)) == 1
    assert len(plan_tasks(ranges_of([(0, LARGE_TASK)] * 50), None, None)) == 50
    few = ranges_of([(0, MEDIUM_TASK)] * (2 * FEW_TASKS))
    assert len(plan_tasks(few, None, None)) == FEW_TASKS


def test_ranges_that_are_not_worth_a_task_each_get_one_for_each_core() -> None:
    small = ranges_of([(0, SMALL_TASK)] * (2 * CORES))
    assert len(plan_tasks(small, None, None)) == CORES
    assert len(plan_tasks(small[:1], None, None)) == 1


def test_tasks_are_of_about_the_same_size() -> None:
    tasks = plan_tasks(ranges_of([(0, size) for size in (60_000, 10_000, 20_000, 30_000)]), 2, None)
    sizes = [sum(map(size_of, task.ranges)) for task in tasks]
    assert sizes[0] == 60_000
    assert sum(sizes) == 120_000
    assert sizes == sorted(sizes, reverse=True)


def test_packing_keeps_min_partitions() -> None:
    ranges = ranges_of([(0, 10)] * 8)
    assert task_count(ranges, 1) == 1
    assert len(plan_tasks(ranges, 6, None)) == 6
    assert len(plan_tasks(ranges, 16, None)) == 16


def test_large_ranges_are_cut_in_proportion() -> None:
    pieces = split_ranges(ranges_of([(0, 100), (0, 900)]), 10, None)
    assert [sum(1 for piece in pieces if piece.partition == p) for p in (0, 1)] == [1, 9]


def test_max_records_cuts_and_nothing_is_packed_then() -> None:
    tasks = plan_tasks(ranges_of([(0, 25), (0, 5)]), None, 10)
    assert [size_of(task.ranges[0]) for task in tasks] == [8, 8, 9, 5]


PARTITIONS = st.dictionaries(
    st.integers(0, 30),
    st.tuples(st.integers(0, 2**62), st.one_of(st.integers(-3, 20), st.integers(0, 10**15))),
    min_size=1,
    max_size=20,
)


@settings(deadline=None)
@given(PARTITIONS, st.integers(1, 10**12))
def test_a_limit_is_shared_in_proportion(
    partitions: dict[int, tuple[int, int]], limit: int
) -> None:
    start = {TopicPartition("t", number): begin for number, (begin, _) in partitions.items()}
    end = {TopicPartition("t", number): b + size for number, (b, size) in partitions.items()}
    found = limit_offsets(limit, start, end)
    waiting = {p: end[p] - start[p] for p in end if end[p] > start[p]}
    total = sum(waiting.values())
    taken = {p: found[p] - start[p] for p in waiting}
    assert found.keys() == end.keys()
    assert all(found[p] == end[p] for p in end.keys() - waiting.keys())
    assert all(1 <= taken[p] <= waiting[p] for p in waiting)
    if total <= limit:
        assert found == end
    else:
        assert limit - len(waiting) <= sum(taken.values()) <= limit + len(waiting)
        assert all(abs(taken[p] * total - limit * waiting[p]) <= total for p in waiting)


def test_a_minimum_delays_all_but_the_first_batch_until_the_delay_is_over() -> None:
    delay = TriggerDelay(min_offsets=10, max_delay_ms=1_000)
    assert not delay.must_wait(1, now_ms=5_000)
    assert delay.must_wait(9, now_ms=5_001)
    assert not delay.must_wait(10, now_ms=5_002)
    assert delay.must_wait(9, now_ms=6_001)
    assert not delay.must_wait(0, now_ms=6_002)


BYTES = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**7)), min_size=1, max_size=8)


@settings(deadline=None)
@given(BYTES, st.integers(10**3, 10**9))
def test_tasks_have_at_most_so_many_bytes(sizes: list[tuple[int, int]], limit: int) -> None:
    # So that no plan has more than some thousand tasks.
    limit = max(limit, sum(size * each for size, each in sizes) // 500, 1)
    ranges = [OffsetRange("t", ZERO_UUID, p, 0, size) for p, (size, _) in enumerate(sizes)]
    averages = {TopicPartition("t", p): float(each) for p, (_, each) in enumerate(sizes)}
    sized = TaskBytes(limit, averages)
    tasks = plan_tasks(ranges, None, None, sized)
    pieces = sorted((piece for task in tasks for piece in task.ranges), key=lambda r: r.start)
    for wanted in ranges:
        mine = [piece for piece in pieces if piece.partition == wanted.partition]
        assert [mine[0].start, mine[-1].end] == [wanted.start, wanted.end]
        assert all(one.end == other.start for one, other in pairwise(mine))
    for task in tasks:
        one_more = max(averages[TopicPartition("t", piece.partition)] for piece in task.ranges)
        assert sum(map(sized.of, task.ranges)) <= limit + one_more


def test_unknown_sizes_change_no_plan() -> None:
    ranges = ranges_of([(0, 10**6), (0, 10)])
    assert plan_tasks(ranges, None, None, TaskBytes(10, {})) == plan_tasks(ranges, None, None)


def test_a_batch_has_at_most_so_many_bytes() -> None:
    start = {TopicPartition("t", p): 100 for p in range(4)}
    end = {TopicPartition("t", 0): 350, TopicPartition("t", 1): 1100, TopicPartition("t", 2): 100}
    end[TopicPartition("t", 3)] = 105
    averages = {TopicPartition("t", 0): 10e6, TopicPartition("t", 1): 1e3}
    found = limit_bytes(100_000_000, start, end, averages)
    assert found == end | {TopicPartition("t", 0): 109, TopicPartition("t", 1): 139}
    assert limit_bytes(10**10, start, end, averages) == end
    # Each partition makes progress, however large its records are.
    assert limit_bytes(1, start, end, averages)[TopicPartition("t", 0)] == 101
