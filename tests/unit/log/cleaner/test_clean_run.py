"""What one clean of a log keeps, and what it leaves on disk."""

from __future__ import annotations

from errno import EIO
from pathlib import Path
from zlib import crc32

import pytest

from ottla.config.topic import LogConfig
from ottla.log.cleaner.clean_run import CleaningAborted, DamagedRecords
from ottla.log.file_names import DELETED
from ottla.log.log import Log
from ottla.log.startup.open_log import create_log
from ottla.memory_files import MemoryFiles
from ottla.model.ids import TopicPartition
from ottla.model.steps import run_to_end
from ottla.records.compression import CODECS
from ottla.server.os_files import OsFiles
from ottla.testing.fakes import FakeClock
from tests.support.cleaner import clean, clean_run, fill, keyed, last_values, roll, seen
from tests.support.log import NOW, append_all, names_in, new_log, new_resources, read_all, reopen
from tests.support.transactions import append_in_transaction, end_transaction, transactional

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), delete_retention_ms=1000, index_interval_bytes=64
)


def compacted() -> Log:
    return new_log(COMPACT)


def advance(log: Log, milliseconds: int) -> None:
    clock = log.resources.clock
    assert isinstance(clock, FakeClock)
    clock.now_ms += milliseconds


def values(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode())
        for r in seen(log)
    ]


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
def test_the_last_record_of_each_key_stays_at_its_offset(codec: int) -> None:
    log = compacted()
    fill(
        log,
        [keyed(("a", "1"), ("b", "1"), ("c", "1"), codec=codec)],
        [keyed(("a", "2"), ("d", "1"), codec=codec)],
        [keyed(("a", "3"), codec=codec), keyed(("b", "2"), codec=codec)],
    )
    before = {record.offset: record for record in seen(log)}
    clean(log)
    assert values(log) == [(2, "c", "1"), (4, "d", "1"), (5, "a", "3"), (6, "b", "2")]
    assert all(before[record.offset] == record for record in seen(log))
    assert log.cleaned_upto == 7
    assert {batch.compression for batch in read_all(log)} == {codec}


def test_the_active_segment_is_not_touched() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"), ("b", "1"))])
    append_all(log, keyed(("a", "2")))
    clean(log)
    assert values(log) == [(0, "a", "1"), (1, "b", "1"), (2, "a", "2")]
    assert log.cleaned_upto == 2


def test_small_segments_become_one() -> None:
    log = compacted()
    for number in range(40):
        fill(log, [keyed(("a", str(number)), (f"k{number}", "v"))])
    clean(log)
    assert log.segments.base_offsets == [0, 64, 80]
    assert len(seen(log)) == 41
    assert [record.offset for record in seen(log)] == sorted({*range(1, 80, 2), 78})


def test_groups_stay_within_the_size_of_a_segment() -> None:
    batch = keyed(("k", "v" * 100))
    log = new_log(COMPACT.replace(segment_bytes=2 * len(batch)))
    for number in range(8):
        append_all(log, keyed((f"{number}", "v" * 100)))
    roll(log)
    clean(log)
    assert log.segments.base_offsets == [0, 2, 4, 6, 8]


def test_a_read_from_a_removed_offset_gives_the_next_one() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1")), keyed(("a", "2"))], [keyed(("a", "3")), keyed(("b", "1"))])
    clean(log)
    for offset in range(3):
        assert seen(log, offset)[0].offset == 2
    assert seen(log, 3)[0].key == b"b"


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"), ("b", "1"))], [keyed(("a", None), timestamp=NOW - 5000)])
    clean(log)
    assert values(log) == [(1, "b", "1"), (2, "a", None)]
    tombstone = read_all(log)[-1]
    assert tombstone.delete_horizon_ms == NOW + 1000
    assert seen(log)[-1].timestamp == NOW - 5000
    advance(log, 999)
    fill(log, [keyed(("c", "1"))])
    clean(log)
    assert values(log)[1] == (2, "a", None)
    advance(log, 1)
    fill(log, [keyed(("d", "1"))])
    clean(log)
    assert values(log) == [(1, "b", "1"), (3, "c", "1"), (4, "d", "1")]


def test_a_tombstone_that_was_overwritten_goes_at_once() -> None:
    log = compacted()
    fill(log, [keyed(("a", None))], [keyed(("a", "2"))])
    clean(log)
    assert values(log) == [(1, "a", "2")]


def test_the_last_batch_of_a_live_producer_keeps_its_sequence() -> None:
    log = compacted()
    producer = {"producer_id": 7, "producer_epoch": 0}
    fill(
        log,
        [keyed(("a", "1"), base_sequence=0, **producer)],
        [keyed(("a", "2"), ("b", "2"), base_sequence=1, **producer)],
        [keyed(("a", "3"), ("b", "3"))],
    )
    clean(log)
    headers = read_all(log)
    assert [(b.base_offset, b.last_offset, b.record_count) for b in headers] == [
        (1, 2, 0),
        (3, 4, 2),
    ]
    assert headers[0].last_sequence == 2
    again = reopen(log)
    assert again.producers.entries[7].last_sequence == 2
    assert append_all(again, keyed(("c", "1"), base_sequence=3, **producer)) == [5]


def test_the_last_batch_of_the_range_keeps_its_offsets() -> None:
    log = compacted()
    fill(log, [keyed(("a", None), ("a", None))])
    advance(log, 5000)
    clean(log)
    advance(log, 5000)
    log.cleaned_upto = 0
    clean(log)
    assert [(b.last_offset, b.record_count) for b in read_all(log)] == [(1, 0)]
    assert reopen(log).log_end_offset == 2


def test_a_map_that_is_full_cleans_in_several_rounds() -> None:
    log = compacted()
    for number in range(30):
        fill(log, [keyed((f"k{number % 20}", str(number)), (f"x{number}", "v"))])
    rounds = 0
    while log.cleaned_upto < 60:
        before, rounds = log.cleaned_upto, rounds + 1
        clean(log, map_bytes=208 * 12)
        assert log.cleaned_upto > before
    assert rounds > 2
    offsets = [record.offset for record in seen(log)]
    assert offsets == sorted({*range(1, 60, 2), *range(20, 60, 2)})


def test_batches_larger_than_a_chunk_are_read_whole() -> None:
    log = compacted()
    fill(
        log,
        [keyed(("a", "x" * 5000), ("b", "x" * 5000)), keyed(("c", "1"))],
        [keyed(("a", "y" * 9000))],
    )
    clean(log, chunk_bytes=100)
    assert [(r.offset, r.key) for r in seen(log)] == [(1, b"b"), (2, b"c"), (3, b"a")]


def test_indexes_of_a_cleaned_segment_are_as_a_rebuild_makes_them() -> None:
    log = compacted()
    for number in range(10):
        batches = [keyed((f"{number}-{i}", "v" * i), timestamp=NOW + i) for i in range(20)]
        fill(log, [*batches, keyed(("same", str(number)))])
    clean(log)
    segment = log.segments[0]
    assert segment.offset_index.entries > 10
    for batch in segment.batches_from(0):
        assert segment.locate(batch.base_offset) == batch
    assert (segment.max_timestamp, segment.max_timestamp_offset) == segment.time_index.last()
    found = log.offset_for_timestamp(NOW + 19)
    assert found is not None
    assert found.timestamp == NOW + 19


def test_old_segments_are_renamed_for_later_deletion() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"))], [keyed(("a", "2"))])
    clean(log)
    assert names_in(log, ".log" + DELETED) == [f"{0:020d}.log.deleted", f"{1:020d}.log.deleted"]
    assert names_in(log, ".snapshot") == [f"{2:020d}.snapshot"]
    assert not names_in(log, ".swap")
    assert not names_in(log, ".cleaned")


def test_the_last_stable_offset_limits_a_clean() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"))], [keyed(("a", "2"))], [keyed(("a", "3"))])
    log.high_watermark = 1
    clean(log)
    log.high_watermark = 3
    assert [r.offset for r in seen(log)] == [0, 1, 2]


def test_damage_is_reported_and_nothing_changes() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"))], [keyed(("a", "2"))])
    path = log.segments[0].path(".log")
    file = log.resources.files.open(path, writable=True)
    file.pwritev([b"\xff"], file.size() - 3)
    before = [(b.base_offset, b.crc) for b in read_all(log)]
    with pytest.raises(DamagedRecords, match=r"0\.log.*CRC"):
        run_to_end(clean_run(log).steps())
    assert [(b.base_offset, b.crc) for b in read_all(log)] == before
    assert not names_in(log, ".cleaned")


def test_what_was_written_before_damage_is_swapped_in() -> None:
    log = new_log(COMPACT.replace(segment_bytes=100))  # no two segments become one
    fill(log, *([keyed((key, "1"), (f"{key}{key}", "1"))] for key in "abcd"))
    fill(log, [keyed(*((key, "2") for key in "abcd"))])
    log.cleaned_upto = 8
    damaged = log.segments[2].path(".log")
    file = log.resources.files.open(damaged, writable=True)
    file.pwritev([b"\xff"], file.size() - 3)
    sizes = [segment.size for segment in log.segments]
    with pytest.raises(DamagedRecords, match=damaged):
        run_to_end(clean_run(log).steps())
    are_smaller = [segment.size < size for segment, size in zip(log.segments, sizes, strict=True)]
    assert are_smaller == [True, True, False, False, False, False]
    assert not names_in(log, ".swap")
    assert not names_in(log, ".cleaned")


class FilesThatBreakASwap(MemoryFiles):
    """Files that cannot be renamed once the old segments are put aside."""

    are_broken = True

    def rename(self, source: str, target: str) -> None:
        if self.are_broken and source.endswith(".swap"):
            raise OSError(EIO, "broken", source)
        super().rename(source, target)


def test_a_swap_that_fails_in_the_middle_is_completed_at_the_next_start() -> None:
    files = FilesThatBreakASwap()
    log = new_log(COMPACT, new_resources(files))
    fill(log, [keyed(("a", "1"), ("b", "1"))], [keyed(("a", "2"))])
    with pytest.raises(OSError, match="the swap of a cleaned segment failed"):
        run_to_end(clean_run(log).steps())
    files.are_broken = False
    assert values(reopen(log)) == [(1, "b", "1"), (2, "a", "2")]


def test_a_truncated_log_is_dirty_from_there() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"), ("b", "1"))], [keyed(("a", "2"))], [keyed(("a", "3"))])
    clean(log)
    assert log.cleaned_upto == 4
    log.high_watermark = 2
    log.truncate_to(2)
    assert log.cleaned_upto == 2


@pytest.mark.parametrize("task", ["begin", "map", "segment", "filter", "finish"])
def test_a_log_that_is_truncated_meanwhile_stays_as_it_is(task: str) -> None:
    """The segment that was cut may be closed again, with other records at the same offsets."""
    log = compacted()
    fill(log, [keyed(("a", "1"), ("b", "1"))], [keyed(("c", "1")), keyed(("a", "2"))])

    def cut() -> None:
        log.high_watermark = 3
        log.truncate_to(3)
        fill(log, [keyed(("d", "1"))])

    with pytest.raises(CleaningAborted):
        run_to_end(clean_run(log, after=task, then=cut).steps())
    assert values(log) == [(0, "a", "1"), (1, "b", "1"), (2, "c", "1"), (3, "d", "1")]
    assert not log.cleaned_upto


@pytest.mark.parametrize("task", ["begin", "map", "segment", "filter", "finish"])
def test_a_log_that_loses_all_closed_segments_meanwhile(task: str) -> None:
    """DeleteRecords and retention may delete everything, the active segment too."""
    log = compacted()
    fill(log, [keyed(("a", "1"))], [keyed(("b", "1"))], [keyed(("c", "1"))])

    def delete_all() -> None:
        log.advance_log_start(3)
        log.delete_old_segments(NOW)

    with pytest.raises(CleaningAborted):
        run_to_end(clean_run(log, after=task, then=delete_all).steps())
    assert log.segments.base_offsets == [3]


def test_a_cut_of_the_active_segment_does_not_end_a_clean() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"))], [keyed(("a", "2"))])
    append_all(log, keyed(("b", "1")), keyed(("c", "1")))

    def cut() -> None:
        log.high_watermark = 3
        log.truncate_to(3)

    run_to_end(clean_run(log, after="finish", then=cut).steps())
    assert values(log) == [(1, "a", "2"), (2, "b", "1")]


def test_cleaning_twice_changes_nothing() -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"), ("b", None))], [keyed(("a", "2"))])
    clean(log)
    before = [(b.base_offset, b.crc) for b in read_all(log)]
    log.cleaned_upto = 0
    clean(log)
    assert [(b.base_offset, b.crc) for b in read_all(log)] == before
    assert last_values(seen(log)) == {b"a": b"2"}


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_refused_and_stay(magic: int) -> None:
    log = compacted()
    fill(log, [keyed(("a", "1"))], [keyed(("a", "2"))])
    path = log.segments[0].path(".log")
    file = log.resources.files.open(path, writable=True)
    file.truncate(0)
    old = old_message(magic, 0, b"a", b"1")
    file.pwritev([old], 0)
    log.segments[0].size = len(old)
    with pytest.raises(DamagedRecords, match=f"the old format {magic}"):
        run_to_end(clean_run(log).steps())
    assert log.resources.files.open(path).pread(1000, 0) == old
    assert not names_in(log, ".cleaned")


def old_message(magic: int, offset: int, key: bytes, value: bytes) -> bytes:
    """Return a message as Kafka wrote it before version 0.11."""
    time = NOW.to_bytes(8, "big") if magic else b""
    rest = bytes([magic, 0]) + time
    rest += len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value
    content = crc32(rest).to_bytes(4, "big") + rest
    return offset.to_bytes(8, "big") + len(content).to_bytes(4, "big") + content


def test_a_helper_that_cannot_read_gets_the_bytes(tmp_path: Path) -> None:
    files = OsFiles()
    resources = new_resources(files)
    log = create_log(resources, str(tmp_path / "t-0"), TopicPartition("t", 0), bytes(16), COMPACT)
    fill(log, [keyed(("a", "1"), ("b", "1"))], [keyed(("a", "2"))])
    clean(log)  # in this process, which is no helper process
    assert last_values(seen(log)) == {b"a": b"2", b"b": b"1"}
    assert [r.offset for r in seen(log)] == [1, 2]


def test_a_producer_that_has_aborted_before_the_dirty_part_counts() -> None:
    """Its later records are not taken for aborted ones when keys are collected."""
    log = compacted()
    append_in_transaction(log, transactional(7, value=b"aborted"))
    end_transaction(log, 7, commit=False)
    fill(log, [keyed(("k", "old"))])
    clean(log)
    append_in_transaction(log, transactional(7, 1, value=b"new"))
    end_transaction(log, 7, commit=True)
    log.write_queued()
    log.high_watermark = log.written_end
    roll(log)
    clean(log)
    assert b"old" not in [record.value for record in seen(log)]


TIERED = COMPACT.replace(remote_storage_enable=True)


def test_a_tiered_log_keeps_tombstones_that_the_remote_part_needs() -> None:
    log = new_log(TIERED)
    fill(log, [keyed(("a", "1"))], [keyed(("a", None)), keyed(("b", None))])
    log.remote_clean_offset = 2
    for number in range(3):
        clean(log)
        advance(log, 1001)
        fill(log, [keyed(("c", str(number)))])
    assert values(log)[0] == (2, "b", None), "the one before the offset is gone"
    horizons = [batch.delete_horizon_ms for batch in read_all(log) if batch.base_offset == 2]
    assert horizons == [None], "its time has not begun"
    log.remote_clean_offset = 3
    for number in range(3):
        clean(log)
        advance(log, 1001)
        fill(log, [keyed(("c", str(number)))])
    assert [key for _, key, _ in values(log) if key == "b"] == []


def test_a_tiered_log_keeps_markers_and_aborted_transactions_of_the_remote_part() -> None:
    log = new_log(TIERED)
    append_in_transaction(log, transactional(7, value=b"aborted"))
    end_transaction(log, 7, commit=False)
    fill(log, [keyed(("a", "1"))], [keyed(("a", "2"))])
    for number in range(3):
        clean(log)
        advance(log, 1001)
        fill(log, [keyed(("c", str(number)))])
    assert [batch.base_offset for batch in read_all(log) if batch.is_control] == [1]
    assert len(log.segments[0].txn_index.entries), "a reader of remote records needs it"


def test_a_tiered_log_keeps_the_beginnings_of_leader_epochs() -> None:
    """At least a header, so that all replicas agree on where epochs begin."""
    log = new_log(TIERED)
    for epoch in (0, 1, 1, 3, 3):
        append_all(log, keyed(("a", str(epoch))), leader_epoch=epoch)
    fill(log, [keyed(("a", "last"))])
    roll(log)
    clean(log)
    found = [(batch.base_offset, batch.partition_leader_epoch) for batch in read_all(log)]
    assert {(0, 0), (1, 1), (3, 3)} <= set(found)
    assert [value for _, _, value in values(log)] == ["last"]
