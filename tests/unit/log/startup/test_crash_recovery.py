"""Opening a log after a crash: what is kept, what is cut, what is reported."""

from __future__ import annotations

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.memory_files import MemoryFiles
from ottla.ports import Files, read_file
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import (
    NOW,
    append_all,
    batch_of,
    names_in,
    new_log,
    new_resources,
    read_all,
    reopen,
)

SIZE = len(batch_of(1))
CONFIG = LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=4096)


def filled(count: int = 10, config: LogConfig = CONFIG, files: Files | None = None) -> Log:
    log = new_log(config, new_resources(files))
    for number in range(count):
        batch = batch_of(1, timestamp=NOW + number, producer_id=9, base_sequence=number)
        append_all(log, batch, leader_epoch=number // 4)
    return log


def overwrite(log: Log, name: str, position: int, content: bytes) -> None:
    log.resources.files.open(log.path(name), writable=True).pwritev([content], position)


def truncate(log: Log, name: str, size: int) -> None:
    log.resources.files.open(log.path(name), writable=True).truncate(size)


def last_log(log: Log) -> str:
    return names_in(log, ".log")[-1]


@pytest.mark.parametrize("missing", range(SIZE))
def test_a_torn_last_batch_is_cut(missing: int) -> None:
    log = filled()
    truncate(log, last_log(log), log.active.size - missing)
    notes: list[str] = []
    again = reopen(log, notes=notes)
    expected = 9 if missing else 10
    assert again.log_end_offset == expected
    assert [batch.base_offset for batch in read_all(again)] == list(range(expected))
    assert len(notes) == (1 if missing else 0)
    entry = again.producers.entries[9]
    assert entry.last_sequence == expected - 1


@pytest.mark.parametrize("at", [0, 8, 16, 17, 30, SIZE - 1])
@pytest.mark.parametrize("number", [0, 5, 9])
def test_the_log_ends_before_the_first_bad_batch(number: int, at: int) -> None:
    log = filled()
    name = f"{number // 4 * 4:020d}.log"
    overwrite(log, name, number % 4 * SIZE + at, b"\xa5")
    notes: list[str] = []
    again = reopen(log, notes=notes)
    assert again.log_end_offset == number
    assert [batch.base_offset for batch in read_all(again)] == list(range(number))
    assert name in notes[0]
    assert append_all(again, batch_of(1)) == [number]
    if number < 8:
        assert "after the damage" in notes[1]


@pytest.mark.parametrize("garbage", [b"\0" * 500, b"\xff" * 500, b"x", bytes(range(200))])
def test_garbage_after_the_last_batch_is_cut(garbage: bytes) -> None:
    log = filled()
    overwrite(log, last_log(log), log.active.size, garbage)
    notes: list[str] = []
    again = reopen(log, notes=notes)
    assert again.log_end_offset == 10
    assert again.resources.files.stat(again.active.path(".log")).size == again.active.size
    assert len(notes) == 1


def test_a_stale_batch_after_the_end_is_cut() -> None:
    log = filled(4)
    content = read_file(log.resources.files, log.active.path(".log"))
    overwrite(log, last_log(log), log.active.size, content[:SIZE])
    notes: list[str] = []
    assert reopen(log, notes=notes).log_end_offset == 4
    assert "offset 0 after 3" in notes[0]


def test_indexes_are_made_anew() -> None:
    log = filled()
    expected = {}
    log.close()
    for suffix in (".index", ".timeindex"):
        for name in names_in(log, suffix):
            expected[name] = read_file(log.resources.files, log.path(name))
            overwrite(log, name, 0, b"\xee" * 100)
    again = reopen(log)
    again.close()
    for name, content in expected.items():
        assert read_file(log.resources.files, log.path(name)) == content


def test_what_lies_below_the_recovery_point_is_not_read() -> None:
    files = FaultyFiles(MemoryFiles())
    config = LogConfig(index_interval_bytes=4096)
    log = new_log(config, new_resources(files))
    for _ in range(300):
        append_all(log, batch_of(1, value=bytes(5000)))
    log.close()
    log = reopen(log, is_clean=True)
    for _ in range(5):
        append_all(log, batch_of(1, value=bytes(5000)))
    files.bytes_read = 0
    again = reopen(log, recovery_point=300)
    assert again.log_end_offset == 305
    assert files.bytes_read < 200_000
    assert len(read_all(again)) == 305


@pytest.mark.parametrize("damage", ["zeros", "disorder", "wrong position", "missing"])
def test_a_bad_index_below_the_recovery_point_is_not_trusted(damage: str) -> None:
    config = LogConfig(index_interval_bytes=0)
    log = filled(50, config)
    log.flush()
    log.active.offset_index.write(config.segment_index_bytes)
    log.active.time_index.write(config.segment_index_bytes)
    name = names_in(log, ".index")[0]
    match damage:
        case "zeros":
            overwrite(log, name, 8, bytes(80))
        case "disorder":
            overwrite(log, name, 80, b"\0\0\0\1\0\0\0\1")
        case "wrong position":
            overwrite(log, name, 8 * 20 + 7, b"\x01")
        case "missing":
            log.resources.files.unlink(log.path(name))
    again = reopen(log, recovery_point=40)
    assert again.log_end_offset == 50
    for offset in range(50):
        batch = again.active.locate(offset)
        assert batch is not None
        assert batch.base_offset == offset
    found = again.max_timestamp()
    assert found is not None
    assert found.offset == 49


def test_timestamps_before_the_recovery_point_stay_known() -> None:
    log = new_log(LogConfig(index_interval_bytes=0))
    for timestamp in (5, 99, 3, 4, 1, 2):
        append_all(log, batch_of(1, timestamp=NOW + timestamp))
    log.active.offset_index.write(4096)
    log.active.time_index.write(4096)
    again = reopen(log, recovery_point=5)
    assert again.max_timestamp() == (1, NOW + 99, 0)
    assert again.offset_for_timestamp(NOW + 50) == (1, NOW + 99, 0)


def test_what_flush_messages_would_have_flushed_is_flushed_after_recovery() -> None:
    log = filled(3)
    assert reopen(log).recovery_point == 0
    config = CONFIG.replace(flush_messages=3)
    assert reopen(log, config=config).recovery_point == 3


def test_a_recovery_point_past_the_end_of_the_log() -> None:
    log = filled()
    truncate(log, last_log(log), SIZE)
    again = reopen(log, recovery_point=10)
    assert again.log_end_offset == 9
    assert again.recovery_point == 9


def test_unflushed_leader_epochs_are_read_from_the_batches() -> None:
    log = filled()
    log.resources.files.unlink(log.path("leader-epoch-checkpoint"))
    again = reopen(log)
    assert again.leader_epochs.entries == ((0, 0), (1, 4), (2, 8))


def test_epochs_past_the_end_are_forgotten() -> None:
    log = filled()
    log.flush()
    truncate(log, last_log(log), 0)
    assert reopen(log).leader_epochs.entries == ((0, 0), (1, 4))


def test_a_damaged_epoch_file_is_noted() -> None:
    log = filled()
    log.flush()
    overwrite(log, "leader-epoch-checkpoint", 0, b"x")
    notes: list[str] = []
    again = reopen(log, notes=notes)
    assert "leader-epoch-checkpoint" in notes[0]
    assert again.leader_epochs.latest_epoch == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_producers_come_from_the_newest_good_snapshot_and_the_batches(is_clean: bool) -> None:
    log = filled()
    log.close()
    expected = log.producers.entries[9]
    for name in names_in(log, ".snapshot")[1:]:
        overwrite(log, name, 6, b"\xff")
    again = reopen(log, is_clean=is_clean, recovery_point=10)
    assert again.producers.entries[9] == expected
    assert names_in(again, ".snapshot") == ["00000000000000000004.snapshot"]


def test_without_snapshots_producers_come_from_all_batches() -> None:
    log = filled()
    for name in names_in(log, ".snapshot"):
        log.resources.files.unlink(log.path(name))
    assert reopen(log).producers.entries[9].last_sequence == 9


def test_snapshots_past_the_end_are_removed() -> None:
    log = filled()
    log.close()
    truncate(log, last_log(log), 0)
    again = reopen(log)
    assert again.log_end_offset == 8
    assert names_in(again, ".snapshot") == [
        "00000000000000000004.snapshot",
        "00000000000000000008.snapshot",
    ]
    assert again.producers.entries[9].last_sequence == 7


@pytest.mark.parametrize("number", [0, 1])
def test_where_the_end_of_a_segment_is_missing_the_log_ends(number: int) -> None:
    log = filled(12)
    truncate(log, names_in(log, ".log")[number], 2 * SIZE)
    notes: list[str] = []
    again = reopen(log, notes=notes)
    assert again.log_end_offset == 4 * number + 2
    assert "are missing" in notes[0]
    assert [batch.base_offset for batch in read_all(again)] == list(range(4 * number + 2))


def test_an_empty_segment_after_a_hole_goes_too() -> None:
    log = filled(8)
    log.roll(NOW)
    truncate(log, names_in(log, ".log")[1], 2 * SIZE)
    again = reopen(log)
    assert again.log_end_offset == 6
    assert append_all(again, batch_of(1)) == [6]


def test_holes_below_the_recovery_point_and_in_compacted_topics_are_kept() -> None:
    log = filled(12)
    truncate(log, names_in(log, ".log")[0], 2 * SIZE)
    again = reopen(log, recovery_point=8)
    assert [batch.base_offset for batch in read_all(again)] == [0, 1, *range(4, 12)]
    compacted = CONFIG.replace(cleanup_policy=frozenset({"compact"}))
    again = reopen(log, config=compacted)
    assert [batch.base_offset for batch in read_all(again)] == [0, 1, *range(4, 12)]


@pytest.mark.parametrize("recovery_point", [0, 3, 4, 6])
def test_garbage_behind_a_complete_segment_is_cut_and_no_more(recovery_point: int) -> None:
    log = filled(12)
    overwrite(log, names_in(log, ".log")[0], 4 * SIZE, bytes(300))
    notes: list[str] = []
    again = reopen(log, recovery_point=recovery_point, notes=notes)
    assert again.log_end_offset == 12
    if recovery_point <= 4:
        assert len(notes) == 1
        assert again.segments[0].size == 4 * SIZE
        assert [batch.base_offset for batch in read_all(again)] == list(range(12))


def test_a_log_that_ends_before_its_start_begins_again() -> None:
    log = filled()
    notes: list[str] = []
    again = reopen(log, log_start_offset=50, notes=notes)
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert "end before the log start offset 50" in notes[0]
    assert append_all(again, batch_of(1)) == [50]


def test_an_empty_directory_is_an_empty_log() -> None:
    log = filled(0)
    for name in names_in(log, ""):
        log.resources.files.unlink(log.path(name))
    again = reopen(log)
    assert append_all(again, batch_of(1)) == [0]


def test_an_empty_last_segment() -> None:
    log = filled(4)
    log.roll(NOW)
    for is_clean in (True, False):
        again = reopen(log, is_clean=is_clean)
        assert again.log_end_offset == 4
        assert again.segments.base_offsets == [0, 4]
        again.close()
