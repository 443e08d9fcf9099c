"""Appending as follower: the leader's bytes, epochs, producers and transactions."""

from __future__ import annotations

from errno import ENOSPC

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.segment.txn_index import AbortedTxn, read_txn_index
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import read_file
from ottla.records.batch import HEADER_SIZE, scan
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch
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

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
WIDE_GAP = 2**31 + 5


def content_of(log: Log) -> bytearray:
    """Return all batches of a log, as one large fetch does."""
    files, found = log.resources.files, bytearray()
    for segment in log.segments:
        found += files.open(segment.path(".log")).pread(segment.size, 0)
    return found


def follow(log: Log, content: bytes | bytearray, *, now_ms: int = NOW) -> int:
    """Append a leader's bytes and write them; return how many were taken."""
    buffer = bytearray(content)
    taken = log.append_as_follower(buffer, memoryview(buffer), 0, len(buffer), now_ms)
    log.write_queued()
    log.high_watermark = log.log_end_offset
    return taken


def files_of(log: Log) -> dict[str, bytes]:
    """Return the names and contents of a log's files."""
    files = log.resources.files
    return {
        entry.name: read_file(files, f"{log.directory}/{entry.name}")
        for entry in files.list(log.directory)
    }


def leader_log(config: LogConfig = CONFIG) -> Log:
    """Create a log with several segments, producers and leader epochs."""
    log, sequences = new_log(config), {7: 0, 8: 0}
    for number in range(20):
        producer_id, count = 7 + number // 2 % 2, 1 + number % 3
        batch = batch_of(count, timestamp=NOW - number, value=b"w" * number * 9)
        if number % 2:
            sequence = sequences[producer_id]
            sequences[producer_id] += count
            batch = batch_of(
                count, timestamp=NOW + number, producer_id=producer_id, base_sequence=sequence
            )
        append(log, batch, leader_epoch=number // 6)
        log.write_queued()
    log.high_watermark = log.log_end_offset
    return log


def plain(base_offset: int, count: int = 1, *, leader_epoch: int = 0) -> bytearray:
    records = [(b"k", b"v" * 20, NOW, ())] * count
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


def transactional(base_offset: int, producer_id: int, *, count: int = 2) -> bytearray:
    return build_batch(
        [(b"k", b"v", NOW, ())] * count,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        leader_epoch=0,
        is_transactional=True,
    )


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytearray:
    return build_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=5,
        timestamp=NOW,
        base_offset=base_offset,
        leader_epoch=0,
    )


def aborted_in(log: Log) -> list[AbortedTxn]:
    return read_txn_index(log.resources.files, log.active.path(".txnindex"))


def test_the_files_are_those_of_the_leader() -> None:
    leader, follower = leader_log(), new_log(CONFIG)
    content = content_of(leader)
    assert follow(follower, content) == len(content)
    assert len(leader.segments) > 3
    assert follower.log_end_offset == follower.written_end == leader.log_end_offset
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert follower.producers.entries == leader.producers.entries
    assert follower.max_timestamp() == leader.max_timestamp()
    leader.close()
    follower.close()
    assert files_of(follower) == files_of(leader)


def test_batch_by_batch_is_the_same_as_all_at_once() -> None:
    leader, follower = leader_log(), new_log(CONFIG)
    content = content_of(leader)
    for batch in scan(content, 0, len(content)):
        assert follow(follower, content[batch.position : batch.end]) == batch.size
    leader.close()
    follower.close()
    assert files_of(follower) == files_of(leader)


def test_segments_may_begin_elsewhere() -> None:
    leader, follower = leader_log(), new_log(CONFIG.replace(segment_bytes=700))
    content = content_of(leader)
    follow(follower, content)
    bases = [segment.base_offset for segment in follower.segments]
    assert bases != [segment.base_offset for segment in leader.segments]
    assert content_of(follower) == content
    assert read_all(follower) == [
        found._replace(position=mine.position)
        for found, mine in zip(read_all(leader), read_all(follower), strict=True)
    ]
    again = reopen(follower)
    assert content_of(again) == content
    assert again.producers.entries == leader.producers.entries


def test_one_write_for_all_batches() -> None:
    files = FaultyFiles(MemoryFiles())
    log = new_log(resources=new_resources(files))
    content = content_of(leader_log(LogConfig()))
    files.writes.clear()
    follow(log, content)
    assert files.writes == [(log.active.path(".log"), 1)]


def test_nothing_is_readable_before_it_is_written() -> None:
    log, buffer = new_log(), plain(0, 2)
    assert log.append_as_follower(buffer, memoryview(buffer), 0, len(buffer), NOW) == len(buffer)
    assert log.has_queued
    assert (log.log_end_offset, log.written_end) == (2, 0)
    log.write_queued()
    assert (log.log_end_offset, log.written_end) == (2, 2)


@pytest.mark.parametrize("missing", [1, 20, 50, HEADER_SIZE, HEADER_SIZE + 5])
def test_a_batch_that_is_cut_off_is_left_out(missing: int) -> None:
    log, first, second = new_log(), plain(0, 2), plain(2, 3)
    whole = first + second
    # What lies behind in a shared buffer is not part of the response.
    buffer = whole[: len(whole) - missing] + b"\xff" * 200
    view = memoryview(buffer)
    taken = log.append_as_follower(buffer, view, 0, len(whole) - missing, NOW)
    log.write_queued()
    assert taken == len(first)
    assert log.log_end_offset == 2
    assert follow(log, second) == len(second)
    assert log.log_end_offset == 5


def test_batches_in_the_middle_of_a_buffer() -> None:
    log = new_log()
    buffer = bytearray(33) + plain(0) + plain(1) + bytearray(b"\x02" * 99)
    taken = log.append_as_follower(buffer, memoryview(buffer), 33, len(buffer) - 99, NOW)
    log.write_queued()
    assert taken == len(plain(0)) * 2
    assert content_of(log) == plain(0) + plain(1)


def test_no_bytes_are_no_batches() -> None:
    log = new_log()
    assert follow(log, b"") == 0
    assert not log.has_queued
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (16, 7, "magic 7"),
        (70, 0xEE, "CRC"),
        (22, 0x01, "CRC"),
        (11, 3, "batch length 3 is below"),
        (23, 0x80, "offsets"),
        (0, 0x80, "offsets"),
    ],
)
def test_damage_is_refused_and_nothing_is_queued(at: int, value: int, message: str) -> None:
    log = new_log()
    follow(log, plain(0))
    damaged = plain(2)
    if at == 11:
        damaged[8:11] = bytes(3)
    damaged[at] = value
    with pytest.raises(ApiError, match=message) as refused:
        follow(log, plain(1) + damaged)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert not log.has_queued
    assert log.log_end_offset == log.written_end == 1
    assert follow(log, plain(1) + plain(2)) == 2 * len(plain(1))


@pytest.mark.parametrize("offsets", [(1,), (2, 2), (2, 1), (5, 4)])
def test_offsets_that_go_back_are_refused(offsets: tuple[int, ...]) -> None:
    log = new_log()
    follow(log, plain(0, 2))
    with pytest.raises(ApiError, match=r"offset \d is below the expected \d") as refused:
        follow(log, b"".join(plain(offset) for offset in offsets))
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert not log.has_queued
    assert log.log_end_offset == 2


def test_gaps_that_compaction_left_are_kept() -> None:
    log = new_log()
    follow(log, plain(3) + plain(10, 2))
    follow(log, plain(20))
    assert log.log_end_offset == 21
    for opened in (log, reopen(log)):
        for offset, found in ((0, 3), (3, 3), (4, 10), (11, 10), (12, 20), (20, 20)):
            piece = opened.read(offset, 10_000, 21, at_least_one=True)
            assert piece is not None
            batch = next(scan(piece.read(), 0, piece.length))
            assert batch.base_offset == found
        below = opened.read(3, 10_000, 15, at_least_one=True)
        assert below is not None
        assert below.length == len(plain(3) + plain(10, 2))


@pytest.mark.parametrize("first", [0, WIDE_GAP])
def test_a_gap_wider_than_a_segment_begins_a_new_one(first: int) -> None:
    log = new_log(LogConfig(cleanup_policy=frozenset({"compact"})))
    batches = [plain(first), plain(first + WIDE_GAP), plain(first + 2 * WIDE_GAP)]
    follow(log, b"".join(batches))
    assert log.log_end_offset == first + 2 * WIDE_GAP + 1
    found = [batch.base_offset for batch in read_all(log)]
    assert found == [first, first + WIDE_GAP, first + 2 * WIDE_GAP]
    again = reopen(log)
    assert [batch.base_offset for batch in read_all(again)] == found


def test_a_failed_write_across_a_wide_gap_is_undone() -> None:
    files = FaultyFiles(MemoryFiles())
    log = new_log(LogConfig(cleanup_policy=frozenset({"compact"})), new_resources(files))
    follow(log, plain(0))
    buffer = plain(1) + plain(WIDE_GAP)
    log.append_as_follower(buffer, memoryview(buffer), 0, len(buffer), NOW)
    files.fill("*.log", room=10)
    with pytest.raises(OSError, match="no room"):
        log.write_queued()
    files.heal()
    assert log.log_end_offset == log.written_end == 1
    follow(log, buffer)
    assert [batch.base_offset for batch in read_all(log)] == [0, 1, WIDE_GAP]


def test_each_batch_brings_its_leader_epoch() -> None:
    log = new_log()
    follow(log, plain(0, 2, leader_epoch=1) + plain(2, leader_epoch=1) + plain(3, leader_epoch=4))
    follow(log, plain(4, leader_epoch=4) + plain(5, leader_epoch=6))
    assert log.leader_epochs.entries == ((1, 0), (4, 3), (6, 5))
    assert log.end_offset_for_epoch(4) == (4, 5)
    assert reopen(log).leader_epochs.entries == log.leader_epochs.entries


def test_sequences_are_not_checked() -> None:
    log = new_log()
    for offset, sequence in ((0, 5), (1, 90), (2, 3)):
        records = [(b"k", b"v", NOW, ())]
        batch = build_batch(
            records,
            base_offset=offset,
            producer_id=9,
            producer_epoch=0,
            base_sequence=sequence,
            leader_epoch=0,
        )
        follow(log, batch)
    assert log.producers.entries[9].last_sequence == 3
    assert log.log_end_offset == 3


def test_transactions_are_followed() -> None:
    log = new_log()
    follow(log, transactional(0, 7) + transactional(2, 8) + marker(4, 7, ControlType.ABORT))
    assert log.last_stable_offset == 2
    assert aborted_in(log) == [AbortedTxn(7, 0, 4, 2)]
    follow(log, transactional(5, 9))
    follow(log, marker(7, 8, ControlType.COMMIT))
    assert log.last_stable_offset == 5
    assert log.producers.ongoing == {9: 5}
    assert log.producers.entries[7].coordinator_epoch == 5
    follow(log, marker(8, 9, ControlType.ABORT))
    assert log.last_stable_offset == 9
    expected = [AbortedTxn(7, 0, 4, 2), AbortedTxn(9, 5, 8, 9)]
    assert aborted_in(log) == expected
    again = reopen(log)
    assert aborted_in(again) == expected
    assert again.producers.entries == log.producers.entries


def test_a_marker_above_the_high_watermark_is_not_stable_yet() -> None:
    log = new_log()
    buffer = transactional(0, 7) + marker(2, 7, ControlType.COMMIT)
    log.append_as_follower(buffer, memoryview(buffer), 0, len(buffer), NOW)
    log.write_queued()
    log.high_watermark = 2
    assert log.last_stable_offset == 0
    log.high_watermark = 3
    assert log.last_stable_offset == 3


def test_an_aborted_transaction_stands_in_the_segment_of_its_marker() -> None:
    log = new_log(CONFIG)
    content = bytearray(transactional(0, 7))
    offset = 2
    while len(content) < 1500:
        content += plain(offset)
        offset += 1
    follow(log, content + marker(offset, 7, ControlType.ABORT))
    assert len(log.segments) == 2
    assert aborted_in(log) == [AbortedTxn(7, 0, offset, offset + 1)]
    assert len(names_in(log, ".txnindex")) == 1


def test_a_failed_write_undoes_transactions_too() -> None:
    files = FaultyFiles(MemoryFiles())
    log = new_log(resources=new_resources(files))
    follow(log, transactional(0, 7) + transactional(2, 8))
    before = dict(log.producers.entries), dict(log.producers.ongoing), log.last_stable_offset
    rest = (
        marker(4, 7, ControlType.ABORT)
        + transactional(5, 9)
        + marker(7, 9, ControlType.ABORT)
        + transactional(8, 7)
    )
    log.append_as_follower(rest, memoryview(rest), 0, len(rest), NOW)
    files.fill("*.log", room=100)
    with pytest.raises(OSError, match="no room"):
        log.write_queued()
    files.heal()
    after = dict(log.producers.entries), dict(log.producers.ongoing), log.last_stable_offset
    assert after == before
    assert aborted_in(log) == []
    assert log.log_end_offset == 4
    follow(log, rest)
    assert aborted_in(log) == [AbortedTxn(7, 0, 4, 2), AbortedTxn(9, 5, 7, 2)]
    assert log.last_stable_offset == 2


def test_batches_go_when_their_aborted_transactions_cannot_be_written() -> None:
    files = FaultyFiles(MemoryFiles())
    log = new_log(resources=new_resources(files))
    follow(log, transactional(0, 7))
    rest = marker(2, 7, ControlType.ABORT)
    files.fill("*.txnindex")
    with pytest.raises(OSError, match="no room") as failed:
        follow(log, rest)
    assert failed.value.errno == ENOSPC
    files.heal()
    assert log.log_end_offset == log.written_end == 2
    assert log.producers.ongoing == {7: 0}
    follow(log, rest)
    assert aborted_in(log) == [AbortedTxn(7, 0, 2, 3)]


def test_truncation_takes_aborted_transactions_back() -> None:
    log = new_log()
    follow(log, transactional(0, 7) + marker(2, 7, ControlType.ABORT) + transactional(3, 8))
    follow(log, marker(5, 8, ControlType.ABORT))
    log.truncate_to(5)
    assert aborted_in(log) == [AbortedTxn(7, 0, 2, 3)]
    assert log.producers.ongoing == {8: 3}
    follow(log, marker(5, 8, ControlType.COMMIT))
    assert aborted_in(log) == [AbortedTxn(7, 0, 2, 3)]


def test_the_transaction_index_is_forced_to_disk() -> None:
    files = FaultyFiles(MemoryFiles())
    log = new_log(resources=new_resources(files))
    follow(log, transactional(0, 7) + marker(2, 7, ControlType.ABORT))
    files.synced.clear()
    log.flush()
    assert log.active.path(".txnindex") in files.synced
    assert log.recovery_point == 3


def test_a_damaged_marker_is_refused() -> None:
    log = new_log()
    follow(log, transactional(0, 7))
    broken = build_batch(
        [(b"\x00", b"", NOW, ())],
        base_offset=2,
        producer_id=7,
        producer_epoch=0,
        leader_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    with pytest.raises(ApiError, match="control record") as refused:
        follow(log, broken)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.producers.ongoing == {7: 0}


def test_control_batches_without_a_producer_are_plain_bytes() -> None:
    log = new_log()
    batch = build_batch(
        [(b"\x00\x00\x00\x02", b"\x00" * 6, NOW, ())],
        base_offset=0,
        leader_epoch=3,
        is_control=True,
    )
    follow(log, batch)
    assert log.log_end_offset == 1
    assert not log.producers.entries


def test_a_failed_roll_keeps_what_came_before() -> None:
    files = FaultyFiles(MemoryFiles())
    leader, log = leader_log(), new_log(CONFIG, new_resources(files))
    content = content_of(leader)
    files.fill("*.log")
    with pytest.raises(OSError, match="no room"):
        log.append_as_follower(content, memoryview(content), 0, len(content), NOW)
    with pytest.raises(OSError, match="no room"):
        log.append_as_follower(content, memoryview(content), 0, len(content), NOW)
    with pytest.raises(OSError, match="no room"):
        log.write_queued()
    files.heal()
    assert log.log_end_offset == 0
    assert follow(log, content) == len(content)
    assert content_of(log) == content


def test_a_follower_becomes_leader() -> None:
    log = new_log()
    follow(log, content_of(leader_log()))
    end = log.log_end_offset
    sequence = log.producers.entries[7].last_sequence + 1
    batch = batch_of(1, producer_id=7, base_sequence=sequence)
    assert append_all(log, batch, leader_epoch=9) == [end]
    duplicate = batch_of(1, producer_id=7, base_sequence=sequence)
    assert append_all(log, duplicate, leader_epoch=9) == [end]
    assert log.leader_epochs.latest_epoch == 9


def test_what_needs_a_segment_for_which_there_is_no_time_is_left_out() -> None:
    leader = new_log(CONFIG)
    append_all(leader, *[batch_of(5) for _ in range(20)])
    content = content_of(leader)
    follower = new_log(CONFIG)
    begun = [True]
    follower.resources.has_time = lambda: bool(begun and begun.pop())
    taken = follow(follower, content)
    assert 0 < taken < len(content)
    assert len(follower.segments) == 2
    while taken < len(content):
        begun.append(True)
        taken += follow(follower, content[taken:])
    assert content_of(follower) == content
    assert [each.base_offset for each in follower] == [each.base_offset for each in leader]
