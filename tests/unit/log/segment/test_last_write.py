"""The last write of a log in memory: it is what a read finds, or it is not used."""

from __future__ import annotations

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.segment.last_write import MOST_KEPT, MOST_KEPT_BYTES
from tests.support.log import append, append_all, batch_of, new_log, new_resources

ENOUGH = 1 << 20


def write_awaited(log: Log, *batches: bytearray) -> None:
    """Append batches and write them while somebody waits for them."""
    for batch in batches:
        append(log, batch)
    log.write_queued(is_awaited=True)
    log.high_watermark = log.written_end


def test_it_is_what_a_read_finds() -> None:
    log = new_log()
    append_all(log, batch_of(3))
    write_awaited(log, batch_of(2), batch_of(1))
    last, found = log.last_write(3, ENOUGH, 6), log.read(3, ENOUGH, 6, at_least_one=True)
    assert last is not None
    assert found is not None
    assert last.content == found.read()
    assert last.length == found.length


def test_it_is_not_used_for_other_reads() -> None:
    log = new_log()
    append_all(log, batch_of(3))
    write_awaited(log, batch_of(2), batch_of(1))
    last = log.last_write(3, ENOUGH, 6)
    assert last is not None
    assert log.last_write(0, ENOUGH, 6) is None
    assert log.last_write(4, ENOUGH, 6) is None
    assert log.last_write(3, ENOUGH, 5) is None
    assert log.last_write(3, last.length - 1, 6) is None
    assert log.last_write(3, last.length, 6) is last
    log.advance_log_start(4)
    assert log.last_write(3, ENOUGH, 6) is None


def test_only_the_last_write_is_kept_and_only_if_somebody_waits() -> None:
    log = new_log()
    write_awaited(log, batch_of(1))
    write_awaited(log, batch_of(1))
    assert log.last_write(0, ENOUGH, 2) is None
    assert log.last_write(1, ENOUGH, 2) is not None
    append_all(log, batch_of(1))
    assert log.last_write(1, ENOUGH, 3) is None
    assert log.last_write(2, ENOUGH, 3) is None


def test_a_large_write_is_not_kept() -> None:
    log = new_log()
    write_awaited(log, batch_of(1, value=b"v" * MOST_KEPT_BYTES))
    assert log.last_write(0, ENOUGH, 1) is None


def test_it_is_forgotten_when_the_log_is_cut() -> None:
    log = new_log()
    append_all(log, batch_of(1))
    write_awaited(log, batch_of(1))
    log.truncate_to(1)
    append_all(log, batch_of(1))
    assert log.last_write(1, ENOUGH, 2) is None


def test_it_is_forgotten_with_a_new_segment() -> None:
    log = new_log(LogConfig(segment_bytes=len(batch_of(1))))
    write_awaited(log, batch_of(1))
    append_all(log, batch_of(1))
    assert len(log.segments) == 2
    assert log.last_write(0, ENOUGH, 2) is None


def test_few_are_kept_of_many_logs() -> None:
    resources = new_resources()
    logs = [
        new_log(resources=resources, directory=f"/data/t-{number}")
        for number in range(MOST_KEPT + 2)
    ]
    for log in logs:
        write_awaited(log, batch_of(1))
    kept = [log.last_write(0, ENOUGH, 1) is not None for log in logs]
    assert kept == [False] * 2 + [True] * MOST_KEPT
    write_awaited(logs[0], batch_of(1))
    assert logs[0].last_write(1, ENOUGH, 2) is not None
    assert logs[2].last_write(0, ENOUGH, 1) is None
