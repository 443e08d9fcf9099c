"""Transactions in cleaned logs: aborted data goes, markers go when nobody needs them any more."""

from __future__ import annotations

import pytest

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.segment.txn_index import read_txn_index
from ottla.model.steps import run_to_end
from ottla.records.control import ControlType, build_marker
from ottla.testing.fakes import FakeClock
from tests.support.cleaner import clean, clean_run, fill, keyed, roll, seen
from tests.support.log import NOW, new_log, read_all, reopen

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=1000)
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


class Transactions:
    """A log with transactional producers, written as a follower writes it."""

    def __init__(self) -> None:
        self.log = new_log(COMPACT)
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, *records: tuple[str, str | None]) -> None:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(records)
        self._append(
            keyed(
                *records,
                base_offset=self.log.log_end_offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        )

    def end(self, producer_id: int, marker: ControlType) -> None:
        self._append(
            build_marker(
                marker,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=NOW,
                base_offset=self.log.log_end_offset,
            )
        )

    def _append(self, batch: bytearray) -> None:
        self.log.append_as_follower(batch, memoryview(batch), 0, len(batch), NOW)
        self.log.write_queued()
        self.log.high_watermark = self.log.log_end_offset

    def roll(self) -> None:
        roll(self.log)

    def forget_producers(self) -> None:
        """Let all producers expire, so that none of their batches is kept for its sequence."""
        self.log.producers.entries.clear()

    def shape(self) -> list[tuple[int, bool, int]]:
        """Return first offset, whether it is a control batch, and records of each batch."""
        return [(b.base_offset, b.is_control, b.record_count) for b in read_all(self.log)]


def advance(log: Log, milliseconds: int) -> None:
    clock = log.resources.clock
    assert isinstance(clock, FakeClock)
    clock.now_ms += milliseconds


def aborted_in(log: Log) -> list[tuple[int, int]]:
    found = [
        each
        for segment in log.segments
        for each in read_txn_index(log.resources.files, segment.path(".txnindex"))
    ]
    return [(each.first_offset, each.last_offset) for each in found]


def test_aborted_records_go_and_do_not_hide_older_values() -> None:
    txns = Transactions()
    fill(txns.log, [keyed(("a", "1"))])
    txns.write(7, ("a", "2"), ("b", "2"))
    txns.end(7, ABORT)
    txns.roll()
    txns.forget_producers()
    clean(txns.log)
    assert [(r.offset, r.value) for r in seen(txns.log) if r.offset < 3] == [(0, b"1")]
    assert txns.shape() == [(0, False, 1), (3, True, 1)]
    assert aborted_in(txns.log) == [(1, 3)], "the marker is there, so its entry is"


def test_an_abort_marker_goes_some_time_after_its_records() -> None:
    txns = Transactions()
    log = txns.log
    txns.write(7, ("a", "1"))
    txns.end(7, ABORT)
    fill(log, [keyed(("z", "1"))])
    txns.forget_producers()
    clean(log)
    assert txns.shape() == [(1, True, 1), (2, False, 1)]
    log.cleaned_upto = 0
    clean(log)  # no batch of the transaction is left: the marker gets its delete horizon
    assert txns.shape() == [(1, True, 1), (2, False, 1)]
    assert read_all(log)[0].delete_horizon_ms == NOW + 1000
    assert aborted_in(log) == []
    advance(log, 1000)
    log.cleaned_upto = 0
    clean(log)
    assert txns.shape() == [(2, False, 1)]


def test_a_commit_marker_stays_while_a_record_of_its_transaction_does() -> None:
    txns = Transactions()
    log = txns.log
    txns.write(7, ("a", "1"))
    txns.end(7, COMMIT)
    txns.roll()
    txns.forget_producers()
    for _ in range(3):
        log.cleaned_upto = 0
        clean(log)
        advance(log, 5000)
    assert txns.shape() == [(0, False, 1), (1, True, 1)]
    assert read_all(log)[1].delete_horizon_ms is None
    fill(log, [keyed(("a", "2"))])
    clean(log)  # the record goes, the marker stays
    assert txns.shape() == [(1, True, 1), (2, False, 1)]
    log.cleaned_upto = 0
    clean(log)
    advance(log, 1000)
    log.cleaned_upto = 0
    clean(log)
    assert txns.shape() == [(2, False, 1)]


def test_an_open_transaction_stops_the_clean_before_it() -> None:
    txns = Transactions()
    log = txns.log
    fill(log, [keyed(("a", "1"))], [keyed(("a", "2"))])
    txns.write(7, ("a", "3"))
    txns.roll()
    fill(log, [keyed(("a", "4"))])
    clean(log)
    assert [r.offset for r in seen(log)] == [1, 2, 3]
    assert log.cleaned_upto == 2


def test_a_transaction_that_ends_after_the_range_is_known_to_be_aborted() -> None:
    txns = Transactions()
    log = txns.log
    fill(log, [keyed(("a", "1"))])
    txns.write(7, ("a", "2"))
    txns.roll()
    fill(log, [keyed(("b", "1"))])
    txns.end(7, ABORT)  # in the active segment
    clean(log)
    txns.forget_producers()
    assert [r.key for r in seen(log) if r.offset < 3] == [b"a", b"b"]
    assert seen(log)[0].value == b"1"


def test_the_marker_with_the_epoch_of_a_live_producer_stays() -> None:
    txns = Transactions()
    log = txns.log
    txns.end(7, ABORT)
    fill(log, [keyed(("z", "1"))])
    assert log.producers.entries[7].last_batch is None
    for _ in range(3):
        log.cleaned_upto = 0
        clean(log)
        advance(log, 5000)
    assert txns.shape() == [(0, True, 0), (1, False, 1)]
    assert 7 not in reopen(log).producers.ongoing


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
def test_a_live_producer_goes_on_after_its_records_were_removed(marker: ControlType) -> None:
    txns = Transactions()
    log = txns.log
    txns.write(7, ("a", "1"))
    txns.end(7, marker)
    txns.roll()
    fill(log, [keyed(("a", "2"))])
    for _ in range(3):
        log.cleaned_upto = 0
        clean(log)
        advance(log, 5000)
    again = reopen(log)
    assert again.producers.entries[7].last_sequence == 0
    assert again.producers.ongoing == {}


def test_an_aborted_transaction_that_retention_deletes_meanwhile_takes_nothing_along() -> None:
    txns = Transactions()
    log = txns.log
    txns.write(7, ("a", "1"))
    txns.end(7, ABORT)
    txns.roll()
    txns.write(7, ("b", "1"))
    txns.end(7, COMMIT)
    txns.roll()

    def delete_the_first_segment() -> None:
        log.advance_log_start(2)
        log.delete_old_segments(NOW)

    run_to_end(clean_run(log, then=delete_the_first_segment).steps())
    assert txns.shape() == [(2, False, 1), (3, True, 1)]
