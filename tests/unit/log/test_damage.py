"""Damaged segments and indexes: what is rebuilt, and what takes a log offline."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from ottla.config.topic import LogConfig
from ottla.log.damage import DamagedLog
from ottla.log.log import Log
from ottla.log.segment import index_jobs
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import HEADER_SIZE, seal
from ottla.sim.background import DeferredBackground
from tests.support.log import NOW, append_all, batch_of, names_in, new_log, read_all, reopen

SIZE = len(batch_of(1))
CONFIG = LogConfig(segment_bytes=10 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=512)
COUNT = 25
OPERATIONS: dict[str, Callable[[Log], object]] = {
    "read": lambda log: log.read(6, 1000, log.high_watermark, at_least_one=True),
    "bytes_available": lambda log: log.bytes_available(6, log.high_watermark),
    "offset_for_timestamp": lambda log: log.offset_for_timestamp(NOW + 6),
    "max_timestamp": lambda log: log.max_timestamp(),
    "retention": lambda log: log.delete_old_segments(NOW + 10**12),
    "truncate_to": lambda log: log.truncate_to(7),
}


def closed(count: int = COUNT) -> Log:
    """Return a log that was closed: segments of ten batches."""
    log = new_log(CONFIG)
    for number in range(count):
        append_all(log, batch_of(1, timestamp=NOW + number))
    log.close()
    return log


def overwrite(log: Log, name: str, position: int, content: bytes) -> None:
    log.resources.files.open(log.path(name), writable=True).pwritev([content], position)


def first(log: Log, suffix: str) -> str:
    return names_in(log, suffix)[0]


def damage_batch(log: Log, number: int = 5) -> None:
    """Make the header of a batch in the first segment one that no batch has."""
    overwrite(log, first(log, ".log"), number * SIZE + 16, b"\x77")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_damaged_segment_with_a_damaged_index_is_an_error_of_the_log(operation: str) -> None:
    log = closed()
    damage_batch(log)
    for suffix in (".index", ".timeindex"):
        log.resources.files.open(log.path(first(log, suffix)), writable=True).truncate(5)
    again = reopen(log, is_clean=True)
    with pytest.raises(DamagedLog) as failed:
        OPERATIONS[operation](again)
    assert first(log, ".log") in str(failed.value)
    assert f"position {5 * SIZE}" in str(failed.value)


@pytest.mark.parametrize("operation", ["read", "bytes_available", "offset_for_timestamp"])
def test_a_batch_that_passes_the_end_of_its_segment_is_damage(operation: str) -> None:
    log = closed()
    overwrite(log, first(log, ".log"), 6 * SIZE + 8, pack(">i", 10**6))
    again = reopen(log, is_clean=True)
    with pytest.raises(DamagedLog, match="incomplete"):
        OPERATIONS[operation](again)


@pytest.mark.parametrize("position", [-1, 10**9, 1, 3 * SIZE, 10 * SIZE, 0])
def test_wrong_entries_inside_an_index_are_rebuilt(position: int) -> None:
    log = closed()
    for slot in range(3, 7):
        entry = pack(">ii", slot, position)
        overwrite(log, first(log, ".index"), slot * 8, entry)
    again = reopen(log, is_clean=True)
    assert [batch.base_offset for batch in read_all(again, max_bytes=1)] == list(range(COUNT))
    for number in range(COUNT):
        found = again.offset_for_timestamp(NOW + number)
        assert found is not None
        assert found.offset == number
    again.truncate_to(7)
    assert [batch.base_offset for batch in read_all(again)] == list(range(7))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_index_that_is_removed_while_it_is_open_is_rebuilt(operation: str) -> None:
    log = reopen(closed(), is_clean=True)
    for number in range(COUNT):
        log.offset_for_timestamp(NOW + number)
    log.resources.pool.close()
    for suffix in (".index", ".timeindex"):
        log.resources.files.unlink(log.path(first(log, suffix)))
    OPERATIONS[operation](log)
    if operation not in ("retention", "truncate_to"):
        found = log.offset_for_timestamp(NOW + 6)
        assert found is not None
        assert found.offset == 6
        assert log.read(6, 1, log.high_watermark, at_least_one=True) is not None


def test_records_that_cannot_be_decoded_are_no_damage_if_the_client_sent_them() -> None:
    log = new_log()
    garbage = batch_of(1, timestamp=NOW + 5)
    garbage[HEADER_SIZE:] = b"\xff" * (len(garbage) - HEADER_SIZE)
    seal(garbage, 0, len(garbage))
    # An older broker took such batches, and a follower takes what its leader has.
    log.append_as_follower(garbage, memoryview(garbage), 0, len(garbage), NOW)
    log.write_queued()
    with pytest.raises(ApiError) as refused:
        log.offset_for_timestamp(NOW)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    overwrite(log, first(log, ".log"), len(garbage) - 1, b"\x00")
    with pytest.raises(DamagedLog):
        log.offset_for_timestamp(NOW)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> DeferredBackground:
    """Return a background that works when it is told to; all segments count as large."""
    monkeypatch.setattr(index_jobs, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(index_jobs, "BATCHES_AT_A_TIME", 3)
    monkeypatch.setattr(index_jobs, "SEGMENTS_AT_ONCE", 1)
    monkeypatch.setattr(index_jobs, "SEGMENTS_AT_A_TIME", 2)
    return DeferredBackground()


def without_indexes(background: DeferredBackground, *, damaged: bool = False) -> Log:
    log = closed()
    if damaged:
        damage_batch(log)
    log.resources.files.unlink(log.path(first(log, ".index")))
    again = reopen(log, is_clean=True)
    again.resources.background = background
    again.resources.index_jobs.is_serving = True
    return again


def test_the_index_of_a_large_segment_is_rebuilt_in_slices_off_the_loop(
    background: DeferredBackground,
) -> None:
    log = without_indexes(background)
    for _ in range(2):  # asking again starts nothing again
        assert log.read(6, 1000, log.high_watermark, at_least_one=True) is None
        assert log.bytes_available(6, log.high_watermark) == 0
    with pytest.raises(IndexNotReady) as not_ready:
        log.offset_for_timestamp(NOW + 6)
    assert not_ready.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert log.delete_old_segments(NOW + 10**12) == 0
    steps = 0
    while len(log.resources.index_jobs):
        assert background.run_one()
        background.deliver()
        steps += 1
    assert steps >= 10 // 3
    assert [batch.base_offset for batch in read_all(log)] == list(range(COUNT))
    assert log.delete_old_segments(NOW + 10**12) == 3


def test_damage_found_in_the_background_is_reported(background: DeferredBackground) -> None:
    log = without_indexes(background, damaged=True)
    failed: list[tuple[str, OSError]] = []
    log.resources.on_error = lambda directory, error: failed.append((directory, error))
    assert log.read(6, 1000, log.high_watermark, at_least_one=True) is None
    background.finish()
    ((directory, error),) = failed
    assert directory == log.directory
    assert isinstance(error, DamagedLog)
    assert not len(log.resources.index_jobs)


@pytest.mark.parametrize("action", ["truncate", "delete", "abandon"])
def test_a_segment_that_is_gone_gets_no_new_index(
    background: DeferredBackground, action: str
) -> None:
    log = without_indexes(background)
    assert log.read(6, 1000, log.high_watermark, at_least_one=True) is None
    match action:
        case "truncate":
            log.truncate_fully(100)
        case "delete":
            log.advance_log_start(20)
            log.delete_old_segments(NOW)
        case "abandon":
            log.abandon()
    before = names_in(log, ".index")
    background.finish()
    assert names_in(log, ".index") == before
    assert not len(log.resources.index_jobs)


def test_timestamps_of_many_segments_are_read_off_the_loop(background: DeferredBackground) -> None:
    log = closed(85)
    again = reopen(log, is_clean=True)
    again.resources.background = background
    again.resources.index_jobs.is_serving = True
    for _ in range(2):
        with pytest.raises(IndexNotReady):
            again.offset_for_timestamp(NOW + 42)
        with pytest.raises(IndexNotReady):
            again.max_timestamp()
    assert len(background) == 1
    background.finish()
    found = again.offset_for_timestamp(NOW + 42)
    assert found is not None
    assert found.offset == 42
    newest = again.max_timestamp()
    assert newest is not None
    assert newest.offset == 84


def test_damaged_time_indexes_among_many_are_rebuilt(background: DeferredBackground) -> None:
    log = closed(85)
    for name in names_in(log, ".timeindex")[2:5]:
        log.resources.files.unlink(log.path(name))
    again = reopen(log, is_clean=True)
    again.resources.background = background
    again.resources.index_jobs.is_serving = True
    with pytest.raises(IndexNotReady):
        again.offset_for_timestamp(NOW + 42)
    background.finish()
    found = again.offset_for_timestamp(NOW + 42)
    assert found is not None
    assert found.offset == 42


def test_a_start_rebuilds_at_once(background: DeferredBackground) -> None:
    log = without_indexes(background)
    log.resources.index_jobs.is_serving = False
    assert log.read(6, 1000, log.high_watermark, at_least_one=True) is not None
    assert not len(background)


def test_the_log_ends_before_the_damage_even_if_its_last_segments_are_both_damaged() -> None:
    log = closed()
    *_, middle, last = names_in(log, ".log")
    log.resources.files.open(log.path(last), writable=True).truncate(1)
    log.resources.files.open(log.path(middle), writable=True).truncate(9 * SIZE + 3)
    again = reopen(log, is_clean=True)
    assert again.log_end_offset == 19
    assert [batch.base_offset for batch in read_all(again)] == list(range(19))
    assert append_all(again, batch_of(1)) == [19]


def test_a_batch_with_an_impossible_offset_is_damage() -> None:
    log = closed()
    overwrite(log, first(log, ".log"), 5 * SIZE, pack(">q", 2**40))
    log.resources.files.unlink(log.path(first(log, ".index")))
    again = reopen(log, is_clean=True)
    with pytest.raises(DamagedLog, match="offsets 1099511627776"):
        again.read(6, 1000, again.high_watermark, at_least_one=True)
