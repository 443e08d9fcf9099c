"""Opening a log after a clean shutdown, and directories as Kafka leaves them."""

from __future__ import annotations

from struct import pack
from zlib import crc32

import pytest

from ottla.config.topic import LogConfig
from ottla.log.file_names import LOG, offset_name
from ottla.log.log import Log
from ottla.log.segment.txn_index import AbortedTxn, read_txn_index
from ottla.memory_files import MemoryFiles
from ottla.ports import read_file
from ottla.records.record import build_batch
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import (
    NOW,
    TOPIC_ID,
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


def filled(count: int = 10, files: FaultyFiles | None = None) -> Log:
    log = new_log(CONFIG, new_resources(files))
    for number in range(count):
        batch = batch_of(1, timestamp=NOW + number, producer_id=9, base_sequence=number)
        append_all(log, batch, leader_epoch=number // 4)
    return log


def test_a_closed_log_opens_as_it_was() -> None:
    log = filled()
    log.advance_log_start(2)
    log.close()
    notes: list[str] = []
    again = reopen(log, is_clean=True, log_start_offset=2, notes=notes)
    assert notes == []
    assert again.topic_id == TOPIC_ID
    assert (again.log_start_offset, again.log_end_offset) == (2, 10)
    assert again.recovery_point == again.high_watermark == 10
    assert again.segments.base_offsets == log.segments.base_offsets
    assert again.size == log.size
    assert again.producers.entries == log.producers.entries
    assert again.leader_epochs.entries == log.leader_epochs.entries == ((0, 2), (1, 4), (2, 8))
    assert [batch.base_offset for batch in read_all(again)] == list(range(2, 10))


def test_all_five_batches_of_a_producer_survive_a_clean_restart() -> None:
    log = filled()
    log.close()
    again = reopen(log, is_clean=True)
    assert len(again.producers.entries[9].batches) == 5
    for number in range(5, 10):
        assert append_all(again, batch_of(1, producer_id=9, base_sequence=number)) == [number]
    assert again.log_end_offset == 10


def test_only_the_tail_is_read_after_a_clean_shutdown() -> None:
    files = FaultyFiles(MemoryFiles())
    log = filled(400, files)
    log.close()
    files.opened.clear()
    files.bytes_read = 0
    again = reopen(log, is_clean=True)
    assert len(again.segments) == 100
    active = offset_name(again.active.base_offset, "")
    others = [path for path in files.opened if path.rpartition("/")[2][0] == "0"]
    assert {path.rpartition("/")[2].partition(".")[0] for path in others} == {
        active,
        offset_name(400, ""),
    }
    assert files.bytes_read < 20_000
    assert len(again.resources.pool) == 0


def test_a_closed_log_leaves_files_of_exact_size() -> None:
    log = filled()
    log.close()
    for segment in log:
        assert log.resources.files.stat(segment.path(LOG)).size == segment.size
        assert log.resources.files.stat(segment.path(".index")).size == (
            8 * segment.offset_index.entries
        )
    assert names_in(log, ".snapshot")[-1] == "00000000000000000010.snapshot"


def test_opening_and_closing_changes_nothing() -> None:
    log = filled()
    log.close()
    files = log.resources.files
    before = {e.name: read_file(files, log.path(e.name)) for e in files.list(log.directory)}
    reopen(log, is_clean=True).close()
    after = {e.name: read_file(files, log.path(e.name)) for e in files.list(log.directory)}
    assert after == before


def test_stray_snapshots_are_removed_but_not_the_newest() -> None:
    log = filled(9)
    log.close()  # 4, 8 at segments, 9 at the end
    again = reopen(log, is_clean=True)
    append_all(again, batch_of(1))
    again.close()
    last = reopen(again, is_clean=True)
    assert names_in(last, ".snapshot") == [offset_name(o, ".snapshot") for o in (4, 8, 10)]


def test_a_damaged_tail_is_cut_even_after_a_clean_shutdown() -> None:
    log = filled()
    log.close()
    log.resources.files.open(log.active.path(LOG), writable=True).truncate(log.active.size - 1)
    notes: list[str] = []
    again = reopen(log, is_clean=True, notes=notes)
    assert again.log_end_offset == 9
    assert len(notes) == 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "size", "content"])
def test_bad_indexes_are_rebuilt_when_they_are_needed(suffix: str, damage: str) -> None:
    log = filled()
    log.close()
    files = log.resources.files
    expected = [read_file(files, log.path(name)) for name in names_in(log, suffix)]
    for name in names_in(log, suffix):
        match damage:
            case "missing":
                files.unlink(log.path(name))
            case "size":
                files.open(log.path(name), writable=True).truncate(13)
            case "content":
                files.open(log.path(name), writable=True).pwritev([b"\xff" * 12], 0)
    again = reopen(log, is_clean=True)
    assert [batch.base_offset for batch in read_all(again, max_bytes=1)] == list(range(10))
    for number in range(10):
        assert again.offset_for_timestamp(NOW + number) == (number, NOW + number, number // 4)
    again.close()
    # Rebuilt with the interval of 4096 bytes that is Kafka's default, so with fewer entries.
    rebuilt = [read_file(files, log.path(name)) for name in names_in(log, suffix)]
    assert len(rebuilt) == len(expected)


def test_orphaned_index_files_are_removed() -> None:
    log = filled()
    log.close()
    log.resources.files.open(log.path("00000000000000000777.index"), create=True)
    notes: list[str] = []
    reopen(log, is_clean=True, notes=notes)
    assert "00000000000000000777.index" in notes[0]
    assert "00000000000000000777.index" not in names_in(log, ".index")


def test_deleted_cleaned_and_temporary_files_go() -> None:
    log = filled()
    log.close()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000004.log.cleaned",
        "00000000000000000004.index.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        log.resources.files.open(log.path(name), create=True)
    again = reopen(log, is_clean=True)
    again.resources.trash.empty(NOW)
    for suffix in (".deleted", ".cleaned", ".tmp"):
        assert names_in(again, suffix) == []
    assert again.log_end_offset == 10


def test_finished_swap_files_replace_the_segments_they_came_from() -> None:
    log = filled()
    log.close()
    files = log.resources.files
    content = read_file(files, log.path(offset_name(4, LOG)))
    swap = content[:SIZE] + content[3 * SIZE :]  # compaction has removed 5 and 6
    for suffix, data in ((LOG, swap), (".index", b""), (".timeindex", b"")):
        path = log.path(offset_name(4, suffix) + ".swap")
        files.open(path, create=True, writable=True).pwritev([data], 0)
    notes: list[str] = []
    again = reopen(log, is_clean=True, notes=notes)
    assert [batch.base_offset for batch in read_all(again)] == [0, 1, 2, 3, 4, 7, 8, 9]
    assert len(notes) == 3


def test_swap_files_of_an_unfinished_split_go() -> None:
    log = filled()
    log.close()
    for name in (offset_name(4, LOG) + ".swap", offset_name(4, LOG) + ".cleaned"):
        log.resources.files.open(log.path(name), create=True)
    again = reopen(log, is_clean=True)
    assert [batch.base_offset for batch in read_all(again)] == list(range(10))
    assert names_in(again, ".swap") == []


def write_segment(log: Log, *batches: bytes) -> None:
    """Put batches into the first segment as another broker has written them."""
    content = b"".join(batches)
    log.resources.files.open(log.active.path(LOG), writable=True).pwritev([content], 0)


def marker(base_offset: int, producer_id: int, kind: int) -> bytes:
    record = (pack(">hh", 0, kind), pack(">hi", 0, 5), NOW, ())
    return bytes(
        build_batch(
            [record],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            leader_epoch=0,
            is_control=True,
            is_transactional=True,
        )
    )


def transactional(base_offset: int, producer_id: int, sequence: int) -> bytes:
    return bytes(
        build_batch(
            [(b"k", b"v", NOW, ())] * 2,
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            leader_epoch=0,
            is_transactional=True,
        )
    )


def test_transactions_of_another_broker_are_understood() -> None:
    log = new_log()
    write_segment(
        log,
        transactional(0, 7, 0),
        transactional(2, 8, 0),
        marker(4, 7, kind=0),  # abort
        transactional(5, 9, 0),
        marker(7, 8, kind=1),  # commit
    )
    again = reopen(log)
    assert again.log_end_offset == 8
    assert again.last_stable_offset == 5  # producer 9 has not ended its transaction
    assert sorted(again.producers.ongoing) == [9]
    assert again.producers.entries[7].coordinator_epoch == 5
    found = read_txn_index(again.resources.files, again.active.path(".txnindex"))
    assert found == [AbortedTxn(7, 0, 4, 2)]
    again.close()
    last = reopen(again, is_clean=True)
    assert last.last_stable_offset == 5


def legacy_message(offset: int, magic: int, timestamp: int, value: bytes) -> bytes:
    body = bytes([magic, 0]) + (pack(">q", timestamp) if magic else b"")
    body += pack(">i", -1) + pack(">i", len(value)) + value
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def test_old_message_formats_are_walked_over() -> None:
    log = new_log()
    write_segment(
        log,
        legacy_message(0, 0, -1, b"zero"),
        legacy_message(1, 1, NOW + 5, b"one"),
        bytes(build_batch([(b"k", b"v", NOW, ())], base_offset=2)),
    )
    for is_clean in (False, True):
        again = reopen(log, is_clean=is_clean)
        assert again.log_end_offset == 3
        assert again.offset_for_timestamp(NOW + 1) == (1, NOW + 5, -1)
        piece = again.read(1, 10_000, 3, at_least_one=True)
        assert piece is not None
        assert piece.position == len(legacy_message(0, 0, -1, b"zero"))
        again.close()
