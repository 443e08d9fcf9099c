"""Which part of which remote segment is read."""

from __future__ import annotations

import pytest

from ottla.log.state.leader_epochs import EpochEntry
from ottla.tier_reader.segment_chain import build_chain, needs_lineage, newest, valid_end
from ottla.tiered.manifest import Manifest, ObjectSummary

OBJECTS = {kind: ObjectSummary(1, 1) for kind in ("log", "index", "timeindex")}


def segment(
    start: int, end: int, *epochs: tuple[int, int], number: int = 0, replaces: tuple[int, ...] = ()
) -> Manifest:
    return Manifest(
        topic="t",
        topic_id=bytes(16),
        partition=0,
        segment_id=bytes([start // 10, end // 10, number]),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=0,
        broker_id=0,
        event_timestamp_ms=0,
        leader_epochs=tuple(EpochEntry(*each) for each in epochs or ((0, start),)),
        objects=OBJECTS,
        replaces=tuple(bytes([0, 9, each]) for each in replaces),
    )


def parts(*segments: Manifest, start: int = 0, lineage: tuple[tuple[int, int], ...] = ()) -> object:
    chain = build_chain(segments, start, tuple(EpochEntry(*each) for each in lineage))
    return [(each.manifest.start_offset, each[1], each[2]) for each in chain.segments], [
        tuple(gap) for gap in chain.gaps
    ]


def test_segments_one_after_the_other() -> None:
    assert parts(segment(100, 199), segment(0, 99)) == ([(0, 0, 99), (100, 100, 199)], [])
    assert parts() == ([], [])


def test_the_log_start_offset_cuts_the_beginning() -> None:
    segments = segment(0, 99), segment(100, 199)
    assert parts(*segments, start=50) == ([(0, 50, 99), (100, 100, 199)], [])
    assert parts(*segments, start=100) == ([(100, 100, 199)], [])
    assert parts(*segments, start=500) == ([], [])
    assert len(build_chain(segments, 100).unused) == 1


def test_what_is_missing_at_the_beginning_is_no_gap() -> None:
    assert parts(segment(100, 199), segment(300, 399), start=20) == (
        [(100, 100, 199), (300, 300, 399)],
        [(200, 299)],
    )


def test_overlapping_segments_are_read_once() -> None:
    assert parts(segment(0, 99), segment(50, 149), segment(100, 199), segment(60, 80)) == (
        [(0, 0, 99), (50, 100, 149), (100, 150, 199)],
        [],
    )


def test_a_replaced_segment_is_not_read() -> None:
    old, new = segment(0, 99, number=1), segment(0, 99, number=2, replaces=(1,))
    chain = build_chain([old, new])
    assert [each.manifest for each in chain.segments] == [new]
    assert chain.unused == (old,)


def test_records_that_an_unclean_election_removed_are_not_read() -> None:
    lost = segment(0, 99, (1, 0))  # its leader had records up to 99 in epoch 1
    kept = segment(40, 139, (1, 40), (2, 60))  # but epoch 2 began at 60
    assert needs_lineage([lost, kept])
    assert newest([lost, kept]) is kept
    assert parts(lost, kept, lineage=((1, 0), (2, 60))) == ([(0, 0, 59), (40, 60, 139)], [])


@pytest.mark.parametrize(
    ("epochs", "lineage", "end"),
    [
        (((1, 0),), (), 99),
        (((1, 0),), ((1, 0),), 99),
        (((1, 0),), ((1, 0), (2, 50)), 49),
        (((1, 0),), ((2, 0),), -1),
        (((1, 0),), ((2, 100),), 99),
        (((1, 0),), ((2, 70),), 69),
        (((1, 0), (3, 50)), ((1, 0), (2, 50)), 49),
        (((1, 0), (3, 50)), ((1, 0), (2, 30)), 29),
        (((1, 0), (3, 50)), ((1, 0), (3, 60)), 49),
        (((1, 0), (3, 50)), ((3, 80),), 99),
        (((1, 0), (3, 50)), ((1, 0), (3, 50), (4, 200)), 99),
    ],
)
def test_the_last_offset_that_is_still_in_the_log(
    epochs: tuple[tuple[int, int], ...], lineage: tuple[tuple[int, int], ...], end: int
) -> None:
    entries = tuple(EpochEntry(*each) for each in lineage)
    assert valid_end(segment(0, 99, *epochs), entries) == end


def test_the_lineage_is_needed_only_for_overlaps_and_falling_epochs() -> None:
    assert not needs_lineage([segment(0, 99, (1, 0)), segment(100, 199, (1, 100))])
    assert needs_lineage([segment(0, 99, (2, 0)), segment(100, 199, (1, 100))])
    assert needs_lineage([segment(0, 100, (1, 0)), segment(100, 199, (1, 100))])
    assert not needs_lineage([])
