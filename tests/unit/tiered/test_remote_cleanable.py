"""Which remote segments a clean rewrites, and how far a remote part is clean."""

from __future__ import annotations

from ottla.log.cleaner.segment_groups import GroupLimits
from ottla.log.state.leader_epochs import EpochEntry
from ottla.tiered.metadata_records import UNKNOWN, RemotePartition, SegmentMetadata
from ottla.tiered.remote_cleanable import RemotePart, clean_offset, groups_to_rewrite

PARTITION = RemotePartition("t", b"t" * 16, 0)
LIMITS = GroupLimits(100, 10_000)


def part(first: int, end: int, clean_upto: int = UNKNOWN, size: int = 40) -> RemotePart:
    segment = SegmentMetadata(
        PARTITION, first.to_bytes(16, "big"), first, end - 1, 0, 1, 0, (EpochEntry(0, first),), size
    )
    return RemotePart(segment._replace(clean_upto=clean_upto), first, end)


def grouped(parts: list[RemotePart], end_offset: int) -> list[list[int]]:
    groups = groups_to_rewrite(parts, end_offset, LIMITS)
    return [[each.first_offset for each in group] for group in groups]


def test_small_segments_are_rewritten_into_one() -> None:
    parts = [part(0, 10, 30), part(10, 20, 30), part(20, 30, 30)]
    assert grouped(parts, 50) == [[0, 10], [20]]
    assert grouped(parts, 30) == []


def test_everything_before_the_last_dirty_segment_is_rewritten() -> None:
    """Transactions are followed from the beginning."""
    parts = [part(0, 10, 50), part(10, 20, 30), part(20, 30, 50), part(30, 40, 50)]
    assert grouped(parts, 50) == [[0, 10]]
    assert grouped(parts, 25) == []


def test_segments_after_the_last_key_stay() -> None:
    parts = [part(0, 10), part(10, 20), part(20, 30)]
    assert grouped(parts, 15) == [[0, 10]]


def test_two_parts_of_a_segment_are_in_one_group() -> None:
    outer, inner = part(0, 30), part(10, 20, size=80)
    parts = [outer._replace(end_offset=10), inner, outer._replace(first_offset=20)]
    groups = groups_to_rewrite(parts, 30, LIMITS)
    assert [len(group) for group in groups] == [3]


def test_deletions_are_needed_until_everything_before_them_is_clean() -> None:
    assert clean_offset([], -1) == 0, "nothing is copied yet"
    assert clean_offset([], 9) == 10
    assert clean_offset([part(0, 10, 25), part(10, 20, 40)], 19) == 20
    assert clean_offset([part(0, 10, 15), part(10, 20, 40)], 19) == 15
    assert clean_offset([part(0, 10, 15), part(10, 20)], 19) == 10, "this one is dirty itself"
    assert clean_offset([part(0, 10, 15)], 19) == 0, "a segment is missing"
