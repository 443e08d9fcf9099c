"""Cutting a log back."""

from __future__ import annotations

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.memory_files import MemoryFiles
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

SIZE = len(batch_of(1))
CONFIG = LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=0)


def filled(count: int = 14) -> Log:
    log = new_log(CONFIG)
    for number in range(count):
        batch = batch_of(1, timestamp=NOW + number, producer_id=9, base_sequence=number)
        append_all(log, batch, leader_epoch=number // 5)
    return log


@pytest.mark.parametrize("offset", range(15))
def test_everything_from_the_offset_on_is_gone(offset: int) -> None:
    log = filled()
    log.truncate_to(offset)
    assert log.log_end_offset == log.written_end == log.high_watermark == offset
    assert [batch.base_offset for batch in read_all(log)] == list(range(offset))
    assert all(entry.start_offset < offset for entry in log.leader_epochs.entries)
    entry = log.producers.entries.get(9)
    assert (entry.last_sequence if entry else -1) == offset - 1
    found = log.max_timestamp()
    assert (found.timestamp - NOW if found else -1) == offset - 1


@pytest.mark.parametrize("offset", [0, 3, 4, 9, 13])
def test_the_log_goes_on_after_the_cut(offset: int) -> None:
    log = filled()
    log.truncate_to(offset)
    sequence = offset
    for number in range(6):
        batch = batch_of(1, timestamp=NOW + 50 + number, producer_id=9, base_sequence=sequence)
        assert append_all(log, batch, leader_epoch=9) == [sequence]
        sequence += 1
    assert [batch.base_offset for batch in read_all(log)] == list(range(sequence))
    assert log.offset_for_timestamp(NOW + 50) == (offset, NOW + 50, 9)
    log.close()
    again = reopen(log, is_clean=True)
    assert [batch.base_offset for batch in read_all(again)] == list(range(sequence))


def test_the_cut_survives_a_crash() -> None:
    log = filled()
    log.truncate_to(6)
    again = reopen(log, recovery_point=log.recovery_point)
    assert again.log_end_offset == 6
    assert again.segments.base_offsets == [0, 4]


def test_truncating_within_a_batch_removes_all_of_it() -> None:
    log = new_log()
    append_all(log, batch_of(2), batch_of(5))
    log.truncate_to(4)
    assert log.log_end_offset == 4
    assert [batch.base_offset for batch in read_all(log)] == [0]
    assert append_all(log, batch_of(1)) == [4]


def test_truncating_past_the_end_keeps_all() -> None:
    log = filled()
    log.truncate_to(99)
    assert log.log_end_offset == 14


def test_the_recovery_point_follows_the_cut() -> None:
    log = filled()
    log.flush()
    log.truncate_to(5)
    assert log.recovery_point == 5


def test_what_is_queued_is_taken_back_first() -> None:
    files = FaultyFiles(MemoryFiles())
    log = new_log(CONFIG, new_resources(files))
    append_all(log, batch_of(1))
    append(log, batch_of(1))
    log.truncate_to(1)
    assert log.log_end_offset == 1
    assert not log.has_queued
    for _ in range(3):
        append(log, batch_of(1))
    files.fill("*.log")
    with pytest.raises(OSError, match="no room"):
        append(log, batch_of(1))  # needs a new segment, and so a write
    files.heal()
    log.truncate_to(1)
    assert append_all(log, batch_of(1)) == [1]


def test_truncating_fully_begins_again_elsewhere() -> None:
    log = filled()
    log.truncate_fully(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert log.leader_epochs.entries == ()
    assert not log.producers.entries
    assert names_in(log, ".snapshot") == []
    assert append_all(log, batch_of(1)) == [100]
    log.close()
    assert reopen(log, is_clean=True).log_start_offset == 100


def test_truncating_before_the_first_segment_is_truncating_fully() -> None:
    log = filled()
    log.advance_log_start(9)
    log.delete_old_segments(NOW)
    log.truncate_to(3)
    assert log.segments.base_offsets == [3]
    assert log.log_start_offset == 3
