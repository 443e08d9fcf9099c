"""Which segments are deleted, when, and how their files are removed."""

from __future__ import annotations

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ApiError, ErrorCode
from ottla.testing.fakes import FakeClock
from tests.support.log import (
    NOW,
    append,
    append_all,
    batch_of,
    names_in,
    new_log,
    new_resources,
    read_all,
    reopen,
)

SIZE = len(batch_of(1))
TWO_A_SEGMENT = LogConfig(segment_bytes=2 * SIZE, retention_ms=-1)


def filled(config: LogConfig, count: int = 10, step_ms: int = 10) -> Log:
    """Return segments of two batches, each batch step_ms after the one before."""
    log = new_log(TWO_A_SEGMENT)
    for number in range(count):
        append_all(log, batch_of(1, timestamp=NOW + step_ms * number))
    log.reconfigure(config)
    return log


def test_by_time_the_largest_timestamp_of_a_segment_counts() -> None:
    log = filled(TWO_A_SEGMENT.replace(retention_ms=100))
    assert log.delete_old_segments(NOW + 110) == 0
    assert log.delete_old_segments(NOW + 111) == 1
    assert log.log_start_offset == 2
    assert log.delete_old_segments(NOW + 151) == 2
    assert [batch.base_offset for batch in read_all(log)] == [6, 7, 8, 9]


def test_one_young_segment_protects_those_after_it() -> None:
    log = new_log(TWO_A_SEGMENT)
    for timestamp in (0, 0, 900, 0, 0, 0, 0):
        append_all(log, batch_of(1, timestamp=NOW + timestamp))
    log.reconfigure(TWO_A_SEGMENT.replace(retention_ms=100))
    assert log.delete_old_segments(NOW + 500) == 1
    assert log.log_start_offset == 2


def test_the_active_segment_goes_after_a_new_one_was_begun() -> None:
    log = filled(TWO_A_SEGMENT.replace(retention_ms=1))
    assert log.delete_old_segments(NOW + 10**6) == 5
    assert log.log_start_offset == log.log_end_offset == 10
    assert log.segments.base_offsets == [10]
    assert append_all(log, batch_of(1, timestamp=NOW + 10**6)) == [10]
    assert log.delete_old_segments(NOW + 10**6) == 0


def test_an_empty_log_is_left_alone() -> None:
    log = new_log(LogConfig(retention_ms=1, retention_bytes=0))
    assert log.delete_old_segments(NOW + 10**9) == 0
    assert log.segments.base_offsets == [0]


def test_without_timestamps_the_modification_time_counts() -> None:
    clock = FakeClock(NOW)
    resources = new_resources(MemoryFiles(clock.wall_ms))
    log = new_log(TWO_A_SEGMENT, resources)
    for number in range(6):
        clock.now_ms = NOW + 100 * number
        append_all(log, batch_of(1, timestamp=-1))
    log.reconfigure(TWO_A_SEGMENT.replace(retention_ms=100))
    # The first segment was written last at NOW + 100, the second at NOW + 300.
    assert log.delete_old_segments(NOW + 201) == 1
    assert log.delete_old_segments(NOW + 400) == 0


def test_by_size_segments_go_while_enough_remains() -> None:
    log = filled(TWO_A_SEGMENT.replace(retention_bytes=5 * SIZE))
    assert log.delete_old_segments(NOW) == 2
    assert log.size == 6 * SIZE
    log.reconfigure(TWO_A_SEGMENT.replace(retention_bytes=4 * SIZE))
    assert log.delete_old_segments(NOW) == 1
    log.reconfigure(TWO_A_SEGMENT.replace(retention_bytes=0))
    assert log.delete_old_segments(NOW) == 2
    assert log.size == 0


def test_compacted_topics_lose_nothing_by_age_or_size() -> None:
    compacted = frozenset({"compact"})
    config = TWO_A_SEGMENT.replace(cleanup_policy=compacted, retention_ms=1, retention_bytes=1)
    log = filled(config)
    assert log.delete_old_segments(NOW + 10**9) == 0
    log.advance_log_start(4)
    assert log.delete_old_segments(NOW) == 2


def test_nothing_at_or_past_the_high_watermark_goes() -> None:
    log = filled(TWO_A_SEGMENT.replace(retention_ms=1))
    log.high_watermark = 5
    assert log.delete_old_segments(NOW + 10**6) == 2
    assert log.log_start_offset == 4


def test_queued_batches_protect_the_active_segment() -> None:
    log = filled(TWO_A_SEGMENT.replace(retention_ms=1), count=3)
    append(log, batch_of(1))
    assert log.delete_old_segments(NOW + 10**6) == 1
    log.write_queued()
    assert log.log_end_offset == 4


def test_delete_records_moves_the_start_and_frees_whole_segments() -> None:
    log = filled(TWO_A_SEGMENT)
    log.advance_log_start(5)
    assert log.log_start_offset == 5
    assert log.delete_old_segments(NOW) == 2
    assert log.segments.base_offsets[0] == 4
    assert read_all(log)[0].base_offset == 5
    log.advance_log_start(3)
    assert log.log_start_offset == 5


def test_delete_records_past_the_high_watermark_is_refused() -> None:
    log = filled(TWO_A_SEGMENT)
    with pytest.raises(ApiError) as refused:
        log.advance_log_start(11)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_log_whose_records_are_all_deleted_goes_on() -> None:
    log = filled(TWO_A_SEGMENT)
    log.advance_log_start(10)
    log.delete_old_segments(NOW)
    assert append_all(log, batch_of(1)) == [10]
    assert [batch.base_offset for batch in read_all(log)] == [10]


def test_epochs_before_the_start_are_forgotten() -> None:
    log = new_log(TWO_A_SEGMENT)
    for epoch in range(3):
        append_all(log, batch_of(1), batch_of(1), leader_epoch=epoch)
    log.advance_log_start(3)
    assert log.leader_epochs.entries == ((1, 3), (2, 4))


def test_deleted_files_are_renamed_at_once_and_removed_after_the_delay() -> None:
    log = filled(TWO_A_SEGMENT.replace(file_delete_delay_ms=1000))
    log.advance_log_start(4)
    log.delete_old_segments(NOW)
    assert "00000000000000000000.log.deleted" in names_in(log, ".deleted")
    assert "00000000000000000002.snapshot.deleted" in names_in(log, ".deleted")
    assert len(names_in(log, ".deleted")) == 7
    assert "00000000000000000002.snapshot" not in names_in(log, ".snapshot")
    trash = log.resources.trash
    assert trash.next_due_ms() == NOW + 1000
    assert trash.empty(NOW + 999) == 0
    assert trash.empty(NOW + 1000) == 7
    assert names_in(log, ".deleted") == []


def test_files_left_by_a_crash_in_between_are_removed_at_the_next_start() -> None:
    log = filled(TWO_A_SEGMENT)
    log.advance_log_start(4)
    log.delete_old_segments(NOW)
    log = reopen(log, log_start_offset=4)
    assert log.segments.base_offsets == [4, 6, 8]
    log.resources.trash.empty(NOW)
    assert names_in(log, ".deleted") == []
