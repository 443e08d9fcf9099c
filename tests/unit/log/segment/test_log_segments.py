"""The sorted list of segments, and the invariants that a log asserts."""

from __future__ import annotations

import pytest

from ottla.log.segment.log_segments import LogSegments
from ottla.log.segment.segment import Segment
from tests.support.log import append, append_all, batch_of, new_log, new_resources


def segments_at(*base_offsets: int) -> LogSegments:
    pool, segments = new_resources().pool, LogSegments()
    for base_offset in base_offsets:
        segments.add(Segment(pool, "/data/t-0", base_offset, 10))
    return segments


def bases(segments: list[Segment]) -> list[int]:
    return [segment.base_offset for segment in segments]


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, 3), (3, 3), (6, 3), (7, 7), (19, 7), (20, 20), (10**9, 20)]
)
def test_an_offset_is_found_in_the_segment_that_holds_it(offset: int, expected: int) -> None:
    segments = segments_at(3, 7, 20)
    assert segments.at(offset).base_offset == expected
    assert segments.from_offset(offset)[0].base_offset == expected
    assert segments[segments.number_at(offset)].base_offset == expected


def test_neighbours() -> None:
    segments = segments_at(3, 7, 20, 30)
    assert [segments.end_of(segment) for segment in segments] == [7, 20, 30, None]
    assert bases(segments.between(segments[0], segments[3])) == [7, 20]
    assert segments.between(segments[0], segments[1]) == []
    assert segments.active is segments[3]
    assert segments.size == 40


def test_removing_keeps_offsets_and_segments_together() -> None:
    segments = segments_at(3, 7, 20, 30)
    assert bases(segments.remove_oldest(1)) == [3]
    assert bases(segments.remove_after(1)) == [30]
    assert segments.base_offsets == bases(list(segments)) == [7, 20]
    segments.replace_all(Segment(new_resources().pool, "/data/t-0", 99, 0))
    assert segments.base_offsets == bases(list(segments)) == [99]


def test_segments_are_sorted_and_never_empty() -> None:
    segments = segments_at(3, 7)
    for base_offset in (7, 5):
        with pytest.raises(AssertionError, match="sorted"):
            segments.add(Segment(new_resources().pool, "/data/t-0", base_offset, 0))
    with pytest.raises(AssertionError, match="at least one"):
        segments.remove_oldest(2)
    with pytest.raises(AssertionError, match="at least one"):
        segments.remove_after(-1)


def test_a_high_watermark_past_the_end_is_noticed_by_the_next_write() -> None:
    log = new_log()
    append_all(log, batch_of(1))
    log.high_watermark = 5
    append(log, batch_of(1))
    with pytest.raises(AssertionError, match="high watermark 5"):
        log.write_queued()


def test_a_high_watermark_before_the_start_is_noticed_by_the_next_write() -> None:
    log = new_log()
    append_all(log, batch_of(1), batch_of(1))
    log.advance_log_start(1)
    log.high_watermark = 0
    append(log, batch_of(1))
    with pytest.raises(AssertionError, match="high watermark 0"):
        log.write_queued()


def test_offsets_that_contradict_each_other_do_not_begin_a_log() -> None:
    log = new_log()
    append_all(log, batch_of(3))
    for start, end, high_watermark in ((2, 3, 1), (0, 2, 3), (4, 3, 3)):
        with pytest.raises(AssertionError):
            log.begin(start, end, high_watermark)


def test_a_recovery_point_past_the_end_is_noticed() -> None:
    log = new_log()
    append_all(log, batch_of(1))
    log.flush_state.set_recovery_point(2)
    with pytest.raises(AssertionError, match="recovery point 2"):
        assert log.recovery_point
