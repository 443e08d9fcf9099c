"""Reading: from memory and from disk, limits, timestamps, ranges."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import run_to_end
from ottla.records.batch import scan
from ottla.records.record import build_batch
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import (
    NOW,
    append,
    append_all,
    batch_of,
    new_log,
    new_resources,
    read_all,
    reopen,
)

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def recent(log: Log) -> Log:
    return log


def reopened(log: Log) -> Log:
    log.close()
    return reopen(log, is_clean=True)


@pytest.fixture(params=[recent, reopened])
def state(request: pytest.FixtureRequest) -> Callable[[Log], Log]:
    """Return a function that keeps the batches in memory, or drops them."""
    result: Callable[[Log], Log] = request.param
    return result


def filled(count: int = 30, config: LogConfig = CONFIG) -> Log:
    """Return batches of 1, 2, 3, 1, 2, 3, ... records."""
    log = new_log(config)
    for number in range(count):
        append_all(log, batch_of(1 + number % 3, timestamp=NOW + 10 * number))
    return log


def test_every_offset_finds_its_batch(state: Callable[[Log], Log]) -> None:
    log = state(filled())
    batches = read_all(log)
    assert len(batches) == 30
    for batch in batches:
        for offset in range(batch.base_offset, batch.next_offset):
            piece = log.read(offset, 1, log.high_watermark, at_least_one=True)
            assert piece is not None
            assert next(scan(piece.read(), 0, piece.length)).base_offset == batch.base_offset
            assert piece.length == batch.size


def test_offsets_out_of_range(state: Callable[[Log], Log]) -> None:
    log = state(filled())
    end = log.log_end_offset
    assert log.read(end, 1000, end, at_least_one=True) is None
    for offset in (-1, end + 1):
        with pytest.raises(ApiError) as error:
            log.read(offset, 1000, end, at_least_one=True)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.advance_log_start(5)
    with pytest.raises(ApiError):
        log.read(4, 1000, end, at_least_one=True)


def test_reads_stop_before_the_given_offset(state: Callable[[Log], Log]) -> None:
    log = state(filled(6))  # offsets 0, 1-2, 3-5, 6, 7-8, 9-11
    assert log.log_end_offset == 12

    def offsets(upto: int, start: int = 0) -> list[int]:
        piece = log.read(start, 10**6, upto, at_least_one=True)
        return [] if piece is None else [b.base_offset for b in scan(piece.read(), 0, piece.length)]

    assert offsets(0) == []
    assert offsets(1) == [0]
    assert offsets(2) == [0]  # the batch that holds it is not below it
    assert offsets(3) == [0, 1]
    assert offsets(7) == [0, 1, 3, 6]
    assert offsets(4, start=4) == []
    assert offsets(5, start=4) == []
    assert offsets(99, start=6)[0] == 6


def test_the_first_batch_is_whole_and_others_are_if_they_are_recent(
    state: Callable[[Log], Log],
) -> None:
    log = state(filled(3, LogConfig()))
    sizes = [batch.size for batch in read_all(log)]
    end = log.log_end_offset

    def length(max_bytes: int, at_least_one: bool) -> int | None:
        piece = log.read(0, max_bytes, end, at_least_one=at_least_one)
        return None if piece is None else piece.length

    assert length(0, False) is None
    assert length(0, True) == sizes[0]
    assert length(sizes[0] - 1, False) is None
    assert length(sizes[0] - 1, True) == sizes[0]
    assert length(sizes[0], False) == sizes[0]
    cut = 0 if state is recent else 5
    assert length(sizes[0] + 5, False) == sizes[0] + cut
    assert length(sizes[0] + sizes[1] + 5, False) == sizes[0] + sizes[1] + cut
    assert length(10**6, False) == sum(sizes)


def test_what_was_written_before_a_roll_is_read_from_memory_as_from_the_indexes() -> None:
    log = filled()
    rolled = log.active_segment.rolled
    assert rolled is not None
    offsets = range(rolled.segment.base_offset, log.log_end_offset)

    def reads() -> list[object]:
        return [
            log.read(offset, 10**6, upto, at_least_one=True)
            for offset in offsets
            for upto in (*range(offset, log.log_end_offset), 10**6)
        ]

    remembered = reads()
    log.active_segment.forget_recent()
    assert reads() == remembered


def test_a_segment_that_is_active_again_is_not_read_as_one_before_a_roll() -> None:
    log = filled()
    rolled = log.active_segment.rolled
    assert rolled is not None
    cut_at = rolled.segment.base_offset + 1
    log.truncate_to(cut_at)
    assert log.active_segment.rolled is None
    append_all(log, batch_of(4))
    assert [batch.base_offset for batch in read_all(log)][-1] == log.log_end_offset - 4


def test_a_read_ends_with_its_segment(state: Callable[[Log], Log]) -> None:
    log = state(filled())
    piece = log.read(0, 10**6, log.high_watermark, at_least_one=True)
    assert piece is not None
    assert piece.length == log.segments[0].size


def test_bytes_available(state: Callable[[Log], Log]) -> None:
    log = state(filled())
    batches = read_all(log)
    end = log.high_watermark
    assert log.bytes_available(end, end) == 0
    assert log.bytes_available(0, end) == log.size
    for number in (0, 7, 20, 29):
        from_here = sum(batch.size for batch in batches[number:])
        assert log.bytes_available(batches[number].base_offset, end) == from_here
        before = sum(batch.size for batch in batches[:number])
        assert log.bytes_available(0, batches[number].base_offset) == before


def test_tail_reads_touch_no_index() -> None:
    files = FaultyFiles(MemoryFiles())
    log = new_log(CONFIG, new_resources(files))
    append_all(log, *(batch_of(1) for _ in range(20)))
    files.opened.clear()
    end = log.log_end_offset
    assert log.read(end - 1, 1000, end, at_least_one=True) is not None
    assert log.bytes_available(end - 1, end) > 0
    assert files.opened == []


def test_memory_for_tail_reads_is_bounded_and_released() -> None:
    log = new_log()
    for _ in range(3000):
        append(log, batch_of(1, value=b""))
        log.write_queued()
    assert len(log.recent.offsets) <= 512
    run_to_end(log.release_idle_memory())
    assert log.recent.offsets
    run_to_end(log.release_idle_memory())
    assert not log.recent.offsets
    log.high_watermark = 3000
    assert len(read_all(log, 2990)) == 10
    append_all(log, batch_of(1))
    run_to_end(log.release_idle_memory())
    assert log.recent.offsets
    run_to_end(log.release_idle_memory())
    assert not log.recent.offsets


def test_gaps_between_batches_are_passed_over(state: Callable[[Log], Log]) -> None:
    log = new_log(CONFIG)
    append_all(log, batch_of(2), batch_of(10))
    log.truncate_to(10)  # within the second batch, which goes as a whole
    append_all(log, batch_of(2))
    log = state(log)
    for offset in (2, 5, 9, 10, 11):
        piece = log.read(offset, 1000, 12, at_least_one=True)
        assert piece is not None
        assert next(scan(piece.read(), 0, piece.length)).base_offset == 10


def test_a_gap_at_the_end_of_a_segment_leads_to_the_next(state: Callable[[Log], Log]) -> None:
    log = new_log()
    append_all(log, batch_of(2), batch_of(10))
    log.truncate_to(10)
    log.roll(NOW)
    append_all(log, batch_of(1))
    log = state(log)
    piece = log.read(5, 1000, 11, at_least_one=True)
    assert piece is not None
    assert next(scan(piece.read(), 0, piece.length)).base_offset == 10


def test_offset_for_timestamp(state: Callable[[Log], Log]) -> None:
    log = state(filled())
    batches = read_all(log)
    assert log.offset_for_timestamp(0) == (0, NOW, 0)
    for number in (0, 1, 13, 29):
        expected = (batches[number].base_offset, NOW + 10 * number, 0)
        assert log.offset_for_timestamp(NOW + 10 * number) == expected
        assert log.offset_for_timestamp(NOW + 10 * number - 9) == expected
    assert log.offset_for_timestamp(NOW + 291) is None


def test_the_first_record_that_is_late_enough_counts(state: Callable[[Log], Log]) -> None:
    log = new_log()
    batch = build_batch([(b"k", b"v", NOW + delta, ()) for delta in (5, 1, 9, 7)], codec=4)
    append_all(log, batch)
    log = state(log)
    assert log.offset_for_timestamp(NOW + 6) == (2, NOW + 9, 0)
    log.advance_log_start(1)
    assert log.offset_for_timestamp(NOW) == (1, NOW + 1, 0)
    assert log.max_timestamp() == (2, NOW + 9, 0)


def test_timestamps_out_of_order_are_found(state: Callable[[Log], Log]) -> None:
    log = new_log(CONFIG)
    for timestamp in (50, 10, 40, 20, 90, 30, 60, 70, 5):
        append_all(log, batch_of(1, timestamp=NOW + timestamp))
    log = state(log)
    assert log.offset_for_timestamp(NOW + 45) == (0, NOW + 50, 0)
    assert log.offset_for_timestamp(NOW + 51) == (4, NOW + 90, 0)
    assert log.max_timestamp() == (4, NOW + 90, 0)


def test_without_timestamps_nothing_is_found(state: Callable[[Log], Log]) -> None:
    log = new_log()
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None
    append_all(log, batch_of(1, timestamp=-1))
    log = state(log)
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None


def test_a_slice_stays_readable_when_its_segment_is_deleted() -> None:
    log = filled()
    piece = log.read(0, 10**6, log.high_watermark, at_least_one=True)
    assert piece is not None
    before = piece.read()
    log.advance_log_start(log.high_watermark)
    assert log.delete_old_segments(NOW) > 0
    log.resources.trash.empty(2**62)
    assert piece.read() == before


def test_last_stable_offset_without_transactions_is_the_high_watermark() -> None:
    log = filled()
    assert log.last_stable_offset == log.high_watermark
    log.high_watermark = 3
    assert log.last_stable_offset == 3
