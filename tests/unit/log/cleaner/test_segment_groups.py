"""Which segments are cleaned into one."""

from __future__ import annotations

from ottla.log.cleaner.segment_groups import GroupLimits, SegmentSizes, group_sizes

LIMITS = GroupLimits(segment_bytes=1000, index_bytes=100)


def segment(base: int, end: int, size: int, offsets: int = 8, times: int = 12) -> SegmentSizes:
    return SegmentSizes(base, end, size, offsets, times)


def test_the_sizes_of_a_group_stay_within_a_segment() -> None:
    sizes = [segment(n, n + 1, 400) for n in range(5)]
    assert group_sizes(sizes, LIMITS) == [2, 2, 1]


def test_both_indexes_count() -> None:
    assert group_sizes([segment(n, n + 1, 1, offsets=60) for n in range(3)], LIMITS) == [1, 1, 1]
    assert group_sizes([segment(n, n + 1, 1, times=48) for n in range(3)], LIMITS) == [2, 1]


def test_offsets_are_32_bits_from_the_first_one() -> None:
    far = [segment(0, 10, 1), segment(10, 2**31, 1), segment(2**31, 2**31 + 5, 1)]
    assert group_sizes(far, LIMITS) == [2, 1]
    far[2] = segment(2**31, 2**31 + 5, 0)  # an empty one has no offsets
    assert group_sizes(far, LIMITS) == [3]


def test_a_large_segment_is_a_group_of_its_own() -> None:
    assert group_sizes([segment(0, 1, 5000), segment(1, 2, 10)], LIMITS) == [1, 1]
    assert group_sizes([], LIMITS) == []


def test_a_swap_on_the_loop_is_bounded() -> None:
    limits = GroupLimits(10**9, 10**9)
    assert group_sizes([segment(n, n + 1, 1) for n in range(70)], limits) == [32, 32, 6]
