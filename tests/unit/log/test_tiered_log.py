"""A log whose older part is in the remote tier only."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.lookup import OffsetTiered
from ottla.log.startup.open_log import Checkpoint, open_log
from ottla.log.state.leader_epochs import EpochEntry
from ottla.log.state.producer_table import ProducerTable
from tests.support.log import NOW, append, batch_of, new_log

TIERED = LogConfig().replace(
    remote_storage_enable=True, segment_bytes=300, local_retention_bytes=0, file_delete_delay_ms=0
)


@pytest.fixture
def log() -> Log:
    """Return a log of ten records, a few in each segment."""
    made = new_log(TIERED)
    for number in range(10):
        append(made, batch_of(1, value=b"v" * 100), leader_epoch=number // 4)
        made.write_queued()
    made.high_watermark = made.log_end_offset
    return made


def test_only_copied_segments_are_deleted(log: Log) -> None:
    assert log.delete_old_segments(NOW) == 0
    log.highest_remote_offset = log.segments.base_offsets[2] - 1
    assert log.delete_old_segments(NOW) == 2
    assert log.log_start_offset == 0
    assert log.local_log_start_offset == log.highest_remote_offset + 1
    log.highest_remote_offset = log.log_end_offset - 1
    log.delete_old_segments(NOW)
    assert len(log.segments) == 1, "the active segment stays"


@pytest.mark.parametrize(
    ("config", "is_rolled"),
    [
        ({"local_retention_ms": 1000}, True),
        ({"retention_ms": 1000}, True),
        ({"local_retention_bytes": 0}, True),
        ({"local_retention_ms": 1000, "cleanup_policy": frozenset({"compact"})}, False),
    ],
)
def test_an_old_active_segment_is_ended_so_that_it_is_copied(
    log: Log, config: dict[str, Any], is_rolled: bool
) -> None:
    """Nobody may write to the log any more: its last records would stay for ever."""
    log.reconfigure(TIERED.replace(**{"local_retention_bytes": -1, **config}))
    later_ms = NOW + 10_000
    active = log.active
    log.delete_old_segments(later_ms)
    assert log.active is active, "segments before it are not copied"
    log.highest_remote_offset = active.base_offset - 1
    log.delete_old_segments(later_ms)
    assert (log.active is not active) == is_rolled
    assert log.local_log_start_offset == active.base_offset
    if is_rolled:
        assert log.delete_old_segments(later_ms) == 0, "it is not copied yet"
        log.highest_remote_offset = log.log_end_offset - 1
        assert log.delete_old_segments(later_ms) == 1
        assert log.delete_old_segments(later_ms) == 0
    assert log.log_start_offset == 0


def with_remote_part(log: Log) -> Log:
    log.highest_remote_offset = log.segments.base_offsets[-1] - 1
    log.delete_old_segments(NOW)
    assert log.local_log_start_offset > 5
    return log


def test_reads_of_the_remote_part_say_so(log: Log) -> None:
    with_remote_part(log)
    with pytest.raises(OffsetTiered):
        log.read(3, 1000, log.high_watermark, at_least_one=True)
    found = log.read(log.local_log_start_offset, 1000, log.high_watermark, at_least_one=True)
    assert found is not None


def test_the_epochs_of_the_remote_part_are_kept(log: Log) -> None:
    with_remote_part(log)
    assert log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 4), EpochEntry(2, 8))
    assert log.end_offset_for_epoch(0) == (0, 4)


def test_turning_the_tier_off_moves_the_start(log: Log) -> None:
    with_remote_part(log)
    log.forget_remote()
    assert log.log_start_offset == log.local_log_start_offset > 5


def test_a_truncation_into_the_remote_part_keeps_it(log: Log) -> None:
    with_remote_part(log)
    log.truncate_to(5)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 5, 5)
    assert log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 4))


def test_deletions_after_a_truncation_are_needed_again(log: Log) -> None:
    log.note_remote(8, 9)
    assert log.keeps_deletions_from == 9
    log.truncate_to(7)
    assert log.keeps_deletions_from == 7
    log.truncate_fully(3)
    assert log.keeps_deletions_from == 3


def test_what_comes_after_a_truncation_is_not_copied_yet(log: Log) -> None:
    log.note_remote(8, 0)
    log.truncate_to(7)
    assert log.highest_remote_offset == 6
    for _ in range(6):
        append(log, batch_of(1, value=b"w" * 100), leader_epoch=9)
        log.write_queued()
    log.high_watermark = log.log_end_offset
    log.delete_old_segments(NOW)
    assert log.local_log_start_offset <= 7


def reopened(log: Log, config: LogConfig, log_start_offset: int = 0) -> Log:
    log.close()
    checkpoint = Checkpoint(
        is_clean=True, log_start_offset=log_start_offset, high_watermark=log.high_watermark
    )
    return open_log(
        log.resources, log.directory, log.topic_partition, config, checkpoint=checkpoint, notes=[]
    )


def test_a_tiered_log_begins_where_the_checkpoint_says(log: Log) -> None:
    again = reopened(with_remote_part(log), TIERED, 2)
    assert again.log_start_offset == 2
    assert again.leader_epochs.entries[0] == EpochEntry(0, 2)


def test_a_log_may_be_opened_before_its_topic_is_known_to_be_tiered(log: Log) -> None:
    again = reopened(with_remote_part(log), LogConfig(), 2)
    assert again.log_start_offset == again.local_log_start_offset
    again.reconfigure(TIERED)
    assert again.log_start_offset == 2
    assert again.leader_epochs.entries[:2] == (EpochEntry(0, 2), EpochEntry(1, 4))


def test_a_follower_begins_with_the_state_of_the_tier(log: Log) -> None:
    epochs = (EpochEntry(0, 0), EpochEntry(3, 50), EpochEntry(7, 120))
    log.begin_after_tier(100, 20, epochs, ProducerTable())
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 100, 100)
    assert log.high_watermark == 100
    assert log.leader_epochs.entries == (EpochEntry(0, 20), EpochEntry(3, 50))
    again = reopened(log, TIERED, 20)
    assert again.leader_epochs.entries == (EpochEntry(0, 20), EpochEntry(3, 50))
