"""Appending: group writes, offsets, duplicates, and undoing what could not be written."""

from __future__ import annotations

from errno import EIO, ENOSPC

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ApiError, ErrorCode
from ottla.testing.faulty_files import FaultyFiles
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


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def log(files: FaultyFiles) -> Log:
    return new_log(resources=new_resources(files))


def test_offsets_count_records(log: Log) -> None:
    assert [append(log, batch_of(count)) for count in (3, 1, 2)] == [0, 3, 4]
    assert log.log_end_offset == 6
    assert log.has_queued


def test_nothing_is_readable_before_it_is_written(log: Log) -> None:
    append_all(log, batch_of(1))
    append(log, batch_of(1))
    log.high_watermark = 2  # even if someone is mistaken about it
    assert [batch.base_offset for batch in read_all(log)] == [0]
    log.write_queued()
    assert [batch.base_offset for batch in read_all(log)] == [0, 1]
    assert not log.has_queued


def test_a_group_is_one_write(log: Log, files: FaultyFiles) -> None:
    for _ in range(5):
        append(log, batch_of(1))
    files.writes.clear()
    log.write_queued()
    assert files.writes == [(log.active.path(".log"), 5)]


def test_writing_nothing_does_nothing(log: Log) -> None:
    log.write_queued()
    assert log.log_end_offset == 0


def test_the_leader_epoch_is_stamped_and_remembered(log: Log) -> None:
    append_all(log, batch_of(2), leader_epoch=3)
    append_all(log, batch_of(1), leader_epoch=5)
    assert [batch.partition_leader_epoch for batch in read_all(log)] == [3, 5]
    assert log.leader_epochs.entries == ((3, 0), (5, 2))
    assert log.end_offset_for_epoch(3) == (3, 2)
    assert log.end_offset_for_epoch(5) == (5, 3)


def test_a_duplicate_gets_the_original_offset_and_is_not_stored(log: Log) -> None:
    for number in range(3):
        append_all(log, batch_of(2, producer_id=9, base_sequence=2 * number))
    assert append(log, batch_of(2, producer_id=9, base_sequence=2)) == 2
    assert not log.has_queued
    assert log.log_end_offset == 6


def test_a_duplicate_of_a_queued_batch(log: Log) -> None:
    first = append(log, batch_of(1, producer_id=9))
    assert append(log, batch_of(1, producer_id=9)) == first
    log.write_queued()
    assert log.log_end_offset == 1


def test_a_duplicate_tells_its_append_time() -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
    append_all(log, batch_of(1, producer_id=9))
    append(log, batch_of(1, producer_id=9), now_ms=NOW + 77)
    assert log.last_append_time == NOW


def test_a_gap_in_the_sequence_is_refused(log: Log) -> None:
    append_all(log, batch_of(1, producer_id=9))
    with pytest.raises(ApiError) as refused:
        append(log, batch_of(1, producer_id=9, base_sequence=2))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("room", [0, 10, 100])
def test_a_failed_write_undoes_everything_queued(log: Log, files: FaultyFiles, room: int) -> None:
    append_all(log, batch_of(2, producer_id=9), leader_epoch=1)
    size = log.size
    files.fill("*.log", room=room)
    append(log, batch_of(1, producer_id=9, base_sequence=2, timestamp=NOW + 5), leader_epoch=2)
    append(log, batch_of(1, producer_id=8), leader_epoch=2)
    with pytest.raises(OSError, match="no room") as failed:
        log.write_queued()
    assert failed.value.errno == ENOSPC
    assert not log.has_queued
    assert log.log_end_offset == log.written_end == 2
    assert log.leader_epochs.entries == ((1, 0),)
    assert list(log.producers.entries) == [9]
    assert log.size == size == files.stat(log.active.path(".log")).size
    found = log.max_timestamp()
    assert found is not None
    assert found.timestamp == NOW
    files.heal()
    assert append_all(log, batch_of(1, producer_id=9, base_sequence=2), leader_epoch=2) == [2]
    assert [batch.base_offset for batch in read_all(log)] == [0, 2]


def test_after_a_failed_write_the_log_reopens_as_it_was(log: Log, files: FaultyFiles) -> None:
    append_all(log, batch_of(2))
    files.fill("*.log", room=90)
    append(log, batch_of(5))
    with pytest.raises(OSError, match="no room"):
        log.write_queued()
    files.heal()
    assert reopen(log).log_end_offset == 2


def test_a_failure_inside_a_roll_is_told_until_the_write(files: FaultyFiles) -> None:
    log = new_log(LogConfig(segment_bytes=500), new_resources(files))
    append(log, batch_of(10))
    files.fill("*.log")
    for _ in range(2):
        with pytest.raises(OSError, match="no room"):
            append(log, batch_of(10))
    assert log.has_queued
    with pytest.raises(OSError, match="no room"):
        log.write_queued()
    assert not log.has_queued
    files.heal()
    log.write_queued()
    assert append_all(log, batch_of(10)) == [0]


def test_a_failed_write_is_undone_across_a_roll(files: FaultyFiles) -> None:
    log = new_log(LogConfig(segment_bytes=500), new_resources(files))
    append_all(log, batch_of(2, producer_id=9), leader_epoch=1)
    append(log, batch_of(8, producer_id=9, base_sequence=2), leader_epoch=2)
    append(log, batch_of(8, producer_id=9, base_sequence=10), leader_epoch=2)
    assert len(log.segments) == 2
    assert log.written_end == 10  # written for the roll, but still part of the group
    files.fill("*.log")
    with pytest.raises(OSError, match="no room"):
        log.write_queued()
    files.heal()
    assert log.log_end_offset == log.written_end == 2
    assert log.segments.base_offsets == [0]
    assert log.leader_epochs.entries == ((1, 0),)
    assert log.producers.entries[9].last_sequence == 1
    assert [batch.base_offset for batch in read_all(log)] == [0]
    assert append_all(log, batch_of(8, producer_id=9, base_sequence=2)) == [2]
    assert reopen(log).log_end_offset == 10


def test_a_write_that_cannot_be_flushed_is_undone(files: FaultyFiles) -> None:
    log = new_log(LogConfig(flush_messages=1), new_resources(files))
    append_all(log, batch_of(1, producer_id=9))
    append(log, batch_of(1, producer_id=9, base_sequence=1))
    files.fail("sync", OSError(ENOSPC, "no room on purpose"), times=1)
    with pytest.raises(OSError, match="no room"):
        log.write_queued()
    assert log.log_end_offset == log.recovery_point == 1
    assert append_all(log, batch_of(1, producer_id=9, base_sequence=1)) == [1]


def test_a_segment_that_cannot_be_made_leaves_the_log_as_it_is(files: FaultyFiles) -> None:
    log = new_log(LogConfig(segment_bytes=500), new_resources(files))
    append_all(log, batch_of(10))
    files.fail("open", OSError(EIO, "on purpose"), path="*00000000000000000010.log")
    with pytest.raises(OSError, match="on purpose"):
        append(log, batch_of(10))
    assert len(log.segments) == 1
    files.heal()
    assert append_all(log, batch_of(10)) == [10]
    assert len(log.segments) == 2
    assert [batch.base_offset for batch in read_all(log)] == [0, 10]


def test_too_many_batches_for_one_call(log: Log) -> None:
    offsets = append_all(log, *(batch_of(1, value=b"") for _ in range(3000)))
    assert offsets == list(range(3000))
    assert len(read_all(log, max_bytes=100_000)) == 3000


def test_index_entries_that_cannot_be_written_do_not_lose_data(files: FaultyFiles) -> None:
    config = LogConfig(index_interval_bytes=0)
    log = new_log(config, new_resources(files))
    files.fill("*index")
    append_all(log, *(batch_of(1) for _ in range(600)))
    assert len(read_all(log)) == 600
    log.recent.clear()
    assert len(read_all(log, 300)) == 300
    files.heal()
    log.close()
    assert len(read_all(reopen(log, is_clean=True))) == 600


def test_flush_messages_forces_the_group_to_disk(files: FaultyFiles) -> None:
    log = new_log(LogConfig(flush_messages=3), new_resources(files))
    append_all(log, batch_of(2))
    assert log.recovery_point == 0
    append_all(log, batch_of(1))
    assert log.recovery_point == 3
    assert log.active.path(".log") in files.synced


def test_reconfigured_sizes_hold_from_the_next_append(log: Log) -> None:
    append_all(log, batch_of(5))
    log.reconfigure(LogConfig(segment_bytes=400))
    append_all(log, batch_of(5))
    assert len(log.segments) == 2


def test_preallocated_segments_are_cut_when_closed(files: FaultyFiles) -> None:
    log = new_log(LogConfig(preallocate=True, segment_bytes=5000), new_resources(files))
    assert files.stat(log.active.path(".log")).size == 5000
    append_all(log, batch_of(5))
    crashed = reopen(log)
    assert crashed.log_end_offset == 5
    log.close()
    assert files.stat(log.active.path(".log")).size == log.size


def test_the_files_of_an_empty_log(log: Log) -> None:
    assert names_in(log, "") == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "partition.metadata",
    ]
