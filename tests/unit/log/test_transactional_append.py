"""Transactional batches and markers on the leader: Kafka's checks, and what they change."""

from __future__ import annotations

import pytest

from ottla.config.topic import LogConfig
from ottla.log.file_names import TXN_INDEX
from ottla.log.log import Log
from ottla.log.segment.index_jobs import SEGMENTS_AT_ONCE, IndexNotReady
from ottla.log.segment.txn_index import TXN_ENTRY, unpack_entries
from ottla.log.state.verifications import NOT_TRANSACTIONAL, UNVERIFIED
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import read_file
from ottla.records.batch import TIMESTAMP_TYPE_MASK, crc_of, scan
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch
from ottla.testing.fakes import QueuedBackground
from tests.support.log import NOW, append, append_all, batch_of, new_log, read_all, reopen
from tests.support.transactions import (
    append_in_transaction,
    end_transaction,
    read_committed,
    transactional,
)

PRODUCER = 7
LAST_EPOCH = 0x7FFF


def settle(log: Log) -> None:
    log.write_queued()
    log.high_watermark = log.log_end_offset


def refusal(log: Log, batch: bytearray, guard: int = UNVERIFIED) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(ApiError) as refused:
        append_in_transaction(log, batch, guard=guard)
    assert log.log_end_offset == end
    return refused.value.code


def guard_of(log: Log, sequence: int = 0, epoch: int = 0, *, adds: bool = False) -> int:
    guard = log.begin_verification(PRODUCER, epoch, sequence, NOW, adds_partition=adds)
    assert guard is not None
    return guard


def test_the_last_stable_offset_waits_for_the_marker_to_be_committed() -> None:
    log = new_log()
    append_all(log, batch_of(2))
    append_in_transaction(log, transactional(PRODUCER, count=3))
    settle(log)
    append_all(log, batch_of(1))
    assert (log.last_stable_offset, log.high_watermark) == (2, 6)
    assert log.producers.entries[PRODUCER].current_txn_first_offset == 2
    end_transaction(log, PRODUCER, commit=True, coordinator_epoch=4)
    log.write_queued()
    assert log.last_stable_offset == 2
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 7
    entry = log.producers.entries[PRODUCER]
    assert (entry.coordinator_epoch, entry.current_txn_first_offset) == (4, -1)
    assert [batch.base_offset for batch in read_committed(log)] == [0, 2, 5]


def test_aborted_records_are_in_the_index_and_not_shown() -> None:
    log = new_log()
    append_in_transaction(log, transactional(PRODUCER, count=2))
    append_in_transaction(log, transactional(8))
    end_transaction(log, PRODUCER, commit=False)
    end_transaction(log, 8, commit=True)
    settle(log)
    assert [batch.base_offset for batch in read_committed(log)] == [2]
    piece = log.read(0, 4096, log.last_stable_offset, at_least_one=True)
    assert piece is not None
    (aborted,) = unpack_entries(log.aborted_transactions(0, piece, log.last_stable_offset))
    assert aborted == (PRODUCER, 0, 3, 2)  # the other one was open when the marker came


def test_only_transactions_of_what_was_read_are_named() -> None:
    log = new_log(LogConfig(segment_bytes=700, index_interval_bytes=1))
    for number in range(40):
        append_in_transaction(log, transactional(PRODUCER, number))
        end_transaction(log, PRODUCER, commit=False)
        settle(log)
    for opened in (log, reopen(log)):
        for offset in range(79):
            piece = opened.read(offset, 200, opened.last_stable_offset, at_least_one=True)
            assert piece is not None
            last = max(batch.last_offset for batch in scan(piece.read(), 0, piece.length))
            found = opened.aborted_transactions(offset, piece, opened.last_stable_offset)
            needed = [first for first in range(0, 80, 2) if first <= last and first + 1 >= offset]
            firsts = [each.first_offset for each in unpack_entries(found)]
            assert firsts[: len(needed)] == needed
            assert len(firsts) <= len(needed) + 4


def aborting_log(segments: int, aborted: int) -> Log:
    """Return a log with this many aborted transactions in each segment, opened by a new process."""
    log = new_log(LogConfig(segment_bytes=2**20))
    for _ in range(segments):
        for _ in range(aborted):
            sequence = log.log_end_offset // 2
            append_in_transaction(log, transactional(PRODUCER, sequence))
            end_transaction(log, PRODUCER, commit=False)
        settle(log)
        log.roll(NOW)
    background = QueuedBackground()
    again = reopen(log, is_clean=True)
    again.resources.background = background
    again.resources.index_jobs.is_serving = True
    return again


def test_many_transaction_indexes_are_read_in_the_background() -> None:
    log = aborting_log(3 * SEGMENTS_AT_ONCE, 1)
    piece = log.read(0, 300, log.last_stable_offset, at_least_one=True)
    assert piece is not None
    # All of them are looked at, because nothing says that the later ones have no record here.
    for segment in log.segments:
        path = segment.path(TXN_INDEX)
        if log.resources.files.exists(path):
            entries = bytearray(read_file(log.resources.files, path))
            entries[-8:] = bytes(8)
            log.resources.files.open(path, writable=True).pwritev([entries], 0)
    with pytest.raises(IndexNotReady):
        log.aborted_transactions(0, piece, log.last_stable_offset)
    with pytest.raises(IndexNotReady):
        log.aborted_transactions(0, piece, log.last_stable_offset)
    background = log.resources.background
    assert isinstance(background, QueuedBackground)
    assert len(background.waiting) == 1
    background.run()
    assert not len(log.resources.index_jobs)
    (first, *_) = unpack_entries(log.aborted_transactions(0, piece, log.last_stable_offset))
    assert first[:3] == (PRODUCER, 0, 1)


def test_a_large_transaction_index_is_read_in_the_background() -> None:
    log = aborting_log(1, 10)
    (segment, *_) = log.segments
    path = segment.path(TXN_INDEX)
    content = b"".join(
        TXN_ENTRY.pack(0, PRODUCER, 2 * number, 2 * number + 1, 2 * number + 2)
        for number in range(8000)
    )
    log.resources.files.open(path, writable=True).pwritev([content], 0)
    piece = log.read(4, 100, log.last_stable_offset, at_least_one=True)
    assert piece is not None
    with pytest.raises(IndexNotReady):
        log.aborted_transactions(4, piece, log.last_stable_offset)
    background = log.resources.background
    assert isinstance(background, QueuedBackground)
    background.run()
    (first, *_) = unpack_entries(log.aborted_transactions(4, piece, log.last_stable_offset))
    assert first == (PRODUCER, 4, 5, 6)


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    log = new_log()
    code = refusal(log, transactional(PRODUCER), NOT_TRANSACTIONAL)
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with pytest.raises(ApiError, match="transactional id"):
        append(log, transactional(PRODUCER))


def test_a_transaction_begins_only_if_it_was_verified() -> None:
    log = new_log()
    assert refusal(log, transactional(PRODUCER)) == ErrorCode.INVALID_TXN_STATE
    guard = guard_of(log)
    assert refusal(log, transactional(PRODUCER), guard + 1) == ErrorCode.INVALID_TXN_STATE
    append_in_transaction(log, transactional(PRODUCER), guard=guard)
    assert log.begin_verification(PRODUCER, 0, 1, NOW, adds_partition=False) is None
    append_in_transaction(log, transactional(PRODUCER, 1), guard=UNVERIFIED)
    end_transaction(log, PRODUCER, commit=True)
    settle(log)
    assert refusal(log, transactional(PRODUCER, 2)) == ErrorCode.INVALID_TXN_STATE


def test_a_marker_between_the_verification_and_the_append_makes_it_void() -> None:
    log = new_log()
    guard = guard_of(log)
    end_transaction(log, PRODUCER, commit=False)
    assert refusal(log, transactional(PRODUCER), guard) == ErrorCode.INVALID_TXN_STATE
    assert guard_of(log) != guard


def test_a_duplicate_is_found_after_its_transaction_has_ended() -> None:
    log = new_log()
    first = append_in_transaction(log, transactional(PRODUCER))
    end_transaction(log, PRODUCER, commit=True)
    settle(log)
    assert append_in_transaction(log, transactional(PRODUCER), guard=UNVERIFIED) == first
    assert log.log_end_offset == 2


def test_a_later_batch_waits_for_the_first_one_that_is_verified() -> None:
    log = new_log()
    guard = guard_of(log, sequence=5)
    assert guard_of(log, sequence=3) == guard
    code = refusal(log, transactional(PRODUCER, 5), guard)
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append_in_transaction(log, transactional(PRODUCER, 3), guard=guard)


def test_a_new_epoch_resets_the_lowest_sequence() -> None:
    log = new_log()
    guard_of(log, sequence=0)
    guard = guard_of(log, sequence=4, epoch=1)
    append_in_transaction(log, transactional(PRODUCER, 4, producer_epoch=1), guard=guard)


def test_with_an_epoch_per_transaction_the_first_sequence_is_zero() -> None:
    log = new_log()
    guard = guard_of(log, sequence=4, adds=True)
    code = refusal(log, transactional(PRODUCER, 4), guard)
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_old_epochs_are_fenced() -> None:
    log = new_log()
    end_transaction(log, PRODUCER, commit=False, producer_epoch=3)
    code = refusal(log, transactional(PRODUCER, producer_epoch=2))
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(ApiError) as fenced:
        log.begin_verification(PRODUCER, 2, 0, NOW, adds_partition=True)
    assert fenced.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(ApiError) as old_marker:
        end_transaction(log, PRODUCER, commit=True, producer_epoch=2)
    assert old_marker.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    guard = guard_of(log, epoch=3)
    append_in_transaction(log, transactional(PRODUCER, producer_epoch=3), guard=guard)


def test_old_coordinators_are_fenced() -> None:
    log = new_log()
    end_transaction(log, PRODUCER, commit=False, coordinator_epoch=5)
    with pytest.raises(ApiError) as fenced:
        end_transaction(log, PRODUCER, commit=True, coordinator_epoch=4)
    assert fenced.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == 1


def test_with_an_epoch_per_transaction_a_late_marker_does_not_end_the_next_one() -> None:
    log = new_log()
    append_in_transaction(log, transactional(PRODUCER))
    end_transaction(log, PRODUCER, commit=True, producer_epoch=1, transaction_version=2)
    # The same marker again, because its answer was lost.
    end_transaction(log, PRODUCER, commit=True, producer_epoch=1, transaction_version=2)
    append_in_transaction(log, transactional(PRODUCER, producer_epoch=1))
    with pytest.raises(ApiError) as late:
        end_transaction(log, PRODUCER, commit=True, producer_epoch=1, transaction_version=2)
    assert late.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    end_transaction(log, PRODUCER, commit=True, producer_epoch=2, transaction_version=2)
    settle(log)
    assert log.last_stable_offset == 5


def test_a_transaction_with_the_last_epoch_can_be_ended() -> None:
    log = new_log()
    append_in_transaction(log, transactional(PRODUCER, producer_epoch=LAST_EPOCH))
    end_transaction(log, PRODUCER, commit=False, producer_epoch=LAST_EPOCH, transaction_version=2)
    settle(log)
    assert log.last_stable_offset == log.log_end_offset


def test_batches_outside_of_an_open_transaction_are_refused() -> None:
    log = new_log()
    append_in_transaction(log, transactional(PRODUCER))
    append(log, batch_of(1, producer_id=8))
    with pytest.raises(ApiError) as refused:
        append(log, batch_of(1, producer_id=PRODUCER, base_sequence=1))
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE


def test_a_transactional_batch_needs_a_producer_id() -> None:
    log = new_log()
    batch = build_batch([(b"k", b"v", NOW, ())], is_transactional=True)
    assert refusal(log, batch) == ErrorCode.INVALID_RECORD


def test_offsets_of_a_coordinator_have_no_sequences() -> None:
    log = new_log()
    records = [(b"k", b"v", NOW, ())]

    def offsets(epoch: int) -> bytearray:
        return build_batch(
            records, producer_id=PRODUCER, producer_epoch=epoch, is_transactional=True
        )

    with pytest.raises(ApiError) as refused:
        log.append_from_coordinator(offsets(0), 0, NOW)
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE
    log.append_from_coordinator(offsets(0), 0, NOW, guard=guard_of(log, -1))
    log.append_from_coordinator(offsets(0), 0, NOW)
    settle(log)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 2)
    end_transaction(log, PRODUCER, commit=True, producer_epoch=1, transaction_version=2)
    with pytest.raises(ApiError) as fenced:
        log.append_from_coordinator(offsets(0), 0, NOW)
    assert fenced.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_gets_the_timestamp_type_of_its_topic() -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
    marker = build_marker(
        ControlType.COMMIT, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    log.append_from_coordinator(marker, 0, NOW)
    settle(log)
    (batch,) = read_all(log)
    assert batch.attributes & TIMESTAMP_TYPE_MASK
    assert batch.max_timestamp == NOW
    piece = log.read(0, 4096, 1, at_least_one=True)
    assert piece is not None
    content = memoryview(piece.read())
    assert crc_of(content, 0, len(content)) == batch.crc


def test_deleted_records_of_an_open_transaction_move_the_last_stable_offset() -> None:
    log = new_log()
    append_in_transaction(log, transactional(PRODUCER, count=5))
    settle(log)
    assert log.last_stable_offset == 0
    log.advance_log_start(3)
    assert log.last_stable_offset == 3
    assert log.producers.ongoing == {PRODUCER: 0}


def test_a_failed_write_takes_the_transaction_back() -> None:
    log = new_log()
    append_in_transaction(log, transactional(PRODUCER))
    settle(log)
    end_transaction(log, PRODUCER, commit=False)
    append_in_transaction(log, transactional(8))
    log.discard_queued()
    assert log.producers.ongoing == {PRODUCER: 0}
    assert log.last_stable_offset == 0
    end_transaction(log, PRODUCER, commit=True)
    settle(log)
    assert log.last_stable_offset == log.log_end_offset == 2
    assert [batch.base_offset for batch in read_committed(log)] == [0]


def test_an_unused_verification_expires() -> None:
    log = new_log()
    guard = guard_of(log)
    log.producers.expire(NOW + 1000, 1001)
    assert guard_of(log) == guard
    log.producers.expire(NOW + 1001, 1001)
    assert guard_of(log) != guard
