"""When a new segment begins, and what the old one looks like then."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.segment.batch_scan import MAX_RELATIVE_OFFSET
from ottla.log.startup.open_log import create_log
from ottla.records.record import build_batch
from ottla.server.os_files import OsFiles
from tests.support.log import (
    NOW,
    PARTITION,
    TOPIC_ID,
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


def bases(log: Log) -> list[int]:
    return log.segments.base_offsets


def test_a_segment_is_never_larger_than_segment_bytes() -> None:
    log = new_log(LogConfig(segment_bytes=3 * SIZE))
    append_all(log, *(batch_of(1) for _ in range(7)))
    assert bases(log) == [0, 3, 6]
    assert [segment.size for segment in log] == [3 * SIZE, 3 * SIZE, SIZE]


def test_the_largest_timestamp_against_the_first_one_rolls() -> None:
    log = new_log(LogConfig(segment_ms=100))
    for timestamp in (NOW, NOW + 100, NOW + 50):
        append_all(log, batch_of(1, timestamp=timestamp))
    assert bases(log) == [0]
    append_all(log, batch_of(1, timestamp=NOW + 101))
    assert bases(log) == [0, 3]
    append_all(log, batch_of(1, timestamp=NOW + 201))
    assert bases(log) == [0, 3]


def test_the_clock_does_not_roll_batches_with_timestamps() -> None:
    log = new_log(LogConfig(segment_ms=100))
    append(log, batch_of(1))
    append(log, batch_of(1), now_ms=NOW + 1000)
    assert bases(log) == [0]


def test_the_clock_rolls_batches_without_timestamps() -> None:
    log = new_log(LogConfig(segment_ms=100))
    for now in (NOW, NOW + 100):
        append(log, batch_of(1, timestamp=-1), now_ms=now)
    assert bases(log) == [0]
    append(log, batch_of(1, timestamp=-1), now_ms=NOW + 101)
    assert bases(log) == [0, 2]


def test_the_first_timestamp_is_found_again_after_a_restart() -> None:
    config = LogConfig(segment_ms=100)
    log = new_log(config)
    append_all(log, batch_of(1))
    log.close()
    log = reopen(log, is_clean=True)
    append_all(log, batch_of(1, timestamp=NOW + 100))
    assert bases(log) == [0]
    append_all(log, batch_of(1, timestamp=NOW + 101))
    assert bases(log) == [0, 2]


def test_jitter_makes_segments_roll_earlier() -> None:
    log = new_log(LogConfig(segment_ms=100, segment_jitter_ms=30))  # the test's random says 29
    append_all(log, batch_of(1), batch_of(1, timestamp=NOW + 71))
    assert bases(log) == [0]
    append_all(log, batch_of(1, timestamp=NOW + 72))
    assert bases(log) == [0, 2]


def test_compaction_lag_bounds_the_age_of_segments() -> None:
    compacted = frozenset({"compact"})
    log = new_log(LogConfig(cleanup_policy=compacted, max_compaction_lag_ms=50, segment_ms=100))
    append_all(log, batch_of(1), batch_of(1, timestamp=NOW + 51))
    assert bases(log) == [0, 1]


def test_a_full_offset_index_rolls() -> None:
    # 24 bytes are three entries of the offset index, and one of the time index besides the last.
    log = new_log(LogConfig(index_interval_bytes=0, segment_index_bytes=24))
    append_all(log, *(batch_of(1) for _ in range(6)))
    # The first batch of a segment gets no entry, and the next append finds the index full.
    assert bases(log) == [0, 2, 4]


def test_a_full_index_rolls_whether_written_or_queued() -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=60)
    queued, written = new_log(config), new_log(config)
    for number in range(20):
        timestamp = NOW + number
        append(queued, batch_of(1, timestamp=timestamp))
        append_all(written, batch_of(1, timestamp=timestamp))
    assert bases(queued) == bases(written)
    assert len(bases(queued)) == 4


def test_relative_offsets_must_fit_into_31_bits() -> None:
    log = new_log()
    log.truncate_fully(100)
    append_all(log, batch_of(1))
    last = build_batch([(b"k", b"v", NOW, ())], base_offset=99 + MAX_RELATIVE_OFFSET)
    log.append_as_follower(last, memoryview(last), 0, len(last), NOW)
    append_all(log, batch_of(1))
    assert bases(log) == [100]
    append_all(log, batch_of(1))
    assert bases(log) == [100, 101 + MAX_RELATIVE_OFFSET]


def test_queued_batches_are_written_by_a_roll() -> None:
    log = new_log(LogConfig(segment_bytes=2 * SIZE))
    for _ in range(3):
        append(log, batch_of(1))
    assert log.written_end == 2
    log.write_queued()
    log.high_watermark = 3
    assert [batch.base_offset for batch in read_all(log)] == [0, 1, 2]


def test_a_rolled_segment_has_exact_files_and_a_closing_time_index_entry() -> None:
    log = new_log(LogConfig(index_interval_bytes=2 * SIZE, segment_index_bytes=1000))
    files = log.resources.files
    for number in range(6):
        append_all(log, batch_of(1, timestamp=NOW + number))
    old = log.active
    assert files.stat(old.path(".index")).size == 1000
    assert files.stat(old.path(".timeindex")).size == 996
    log.roll(NOW)
    assert files.stat(old.path(".index")).size == 8 * old.offset_index.entries == 8
    assert files.stat(old.path(".timeindex")).size == 12 * old.time_index.entries == 24
    assert old.time_index.last() == (NOW + 5, 5)
    assert files.stat(log.active.path(".index")).size == 1000


def test_time_index_entries_rise_strictly_although_timestamps_do_not() -> None:
    log = new_log(LogConfig(index_interval_bytes=0))
    timestamps = [5, 3, 9, 9, 1, 12, 2, 30]
    for timestamp in timestamps:
        append_all(log, batch_of(1, timestamp=NOW + timestamp))
    log.roll(NOW)
    index = log.segments[0].time_index
    entries = [index.entry(slot) for slot in range(index.entries)]
    assert entries == [(NOW + 5, 0), (NOW + 9, 2), (NOW + 12, 5), (NOW + 30, 7)]


def test_rolling_an_empty_segment_changes_nothing() -> None:
    log = new_log()
    log.roll(NOW)
    assert bases(log) == [0]
    append_all(log, batch_of(1))
    log.roll(NOW)
    log.roll(NOW)
    assert bases(log) == [0, 1]


def test_a_roll_takes_a_producer_snapshot() -> None:
    log = new_log()
    append_all(log, batch_of(3, producer_id=9))
    log.roll(NOW)
    assert names_in(log, ".snapshot") == ["00000000000000000003.snapshot"]


def test_a_roll_flushes_the_old_segment_in_the_background() -> None:
    log = new_log()
    append_all(log, batch_of(3))
    log.roll(NOW)
    assert log.recovery_point == 3


@pytest.mark.parametrize("count", [1, 2])
def test_a_batch_of_exactly_the_segment_size(count: int) -> None:
    log = new_log(LogConfig(segment_bytes=SIZE))
    append_all(log, *(batch_of(1) for _ in range(count)))
    assert len(bases(log)) == count


def test_room_is_made_ahead_of_large_segments_and_given_back(tmp_path: Path) -> None:
    files = OsFiles()
    files.make_dirs(f"{tmp_path}/t-0")
    config = LogConfig(segment_bytes=14_000_000)
    log = create_log(new_resources(files), f"{tmp_path}/t-0", PARTITION, TOPIC_ID, config)
    large = batch_of(1, value=bytes(900_000))
    for _ in range(11):
        append_all(log, bytearray(large))
    path = log.active.path(".log")
    assert log.active.allocated_end > log.active.size
    assert Path(path).stat().st_size == log.active.size
    log.roll(NOW)
    assert len(log.segments) == 2
    assert Path(path).stat().st_blocks * 512 < log.segments[0].size + 100_000
    log.close()
