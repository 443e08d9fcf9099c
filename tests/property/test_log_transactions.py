"""A log with interleaved transactions against a model, through rolls, failures and restarts.

Transactions of several producers are open at the same time. The model is the list of what was
appended. It says where the last stable offset is, and what a consumer with read_committed sees. A
follower that fetches everything must know the same.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.log.segment.txn_index import read_txn_index
from ottla.memory_files import MemoryFiles
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import NOW, append, batch_of, new_log, new_resources, reopen
from tests.support.transactions import (
    append_in_transaction,
    end_transaction,
    read_committed,
    transactional,
)

CONFIG = LogConfig(
    segment_bytes=900, index_interval_bytes=150, segment_index_bytes=96, retention_ms=-1
)
PRODUCERS = (1, 2, 3)
DATA, PLAIN, COMMIT, ABORT = "data", "plain", "commit", "abort"


class Appended(NamedTuple):
    """A batch in the model."""

    base_offset: int
    records: int
    kind: str
    producer_id: int
    sequence: int = 0

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records


class TransactionsAgainstList(RuleBasedStateMachine):
    """Each rule changes the log and the model in the same way; the invariants compare them."""

    log: Log

    @initialize()
    def begin(self) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.log = new_log(CONFIG, new_resources(self.files, limit=8))
        self.history: list[Appended] = []
        self.written = 0
        self.group_start: int | None = None
        """How many batches of the history are written, and how many were before this group."""
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.first_sequence: dict[int, int] = {}

    # What the model says

    def ongoing(self, batches: list[Appended]) -> dict[int, int]:
        found: dict[int, int] = {}
        for batch in batches:
            if batch.kind == DATA:
                found.setdefault(batch.producer_id, batch.base_offset)
            elif batch.kind in (COMMIT, ABORT):
                found.pop(batch.producer_id, None)
        return found

    def last_stable_offset(self) -> int:
        committed = [b for b in self.history if b.next_offset <= self.log.high_watermark]
        unstable = min(self.ongoing(committed).values(), default=self.log.high_watermark)
        return max(unstable, self.log.log_start_offset)

    def shown(self) -> list[int]:
        """Return the batches below the last stable offset that were not aborted."""
        aborted: set[int] = set()
        of_transaction: dict[int, list[int]] = {}
        for batch in self.history:
            if batch.kind == DATA:
                of_transaction.setdefault(batch.producer_id, []).append(batch.base_offset)
            elif batch.kind in (COMMIT, ABORT):
                ended = of_transaction.pop(batch.producer_id, [])
                aborted.update(ended if batch.kind == ABORT else ())
        return [
            b.base_offset
            for b in self.history[: self.written]
            if b.kind in (DATA, PLAIN)
            and b.base_offset not in aborted
            and b.next_offset > self.log.log_start_offset
            and b.next_offset <= self.log.last_stable_offset
        ]

    # Appending

    def take(self, base_offset: int, records: int, kind: str, producer_id: int = -1) -> None:
        sequence = self.sequences.get(producer_id, 0)
        if self.log.written_end > (
            self.history[self.written - 1].next_offset if self.written else 0
        ):
            self.note_written()  # a roll has written what was queued: a part of the group
        self.history.append(Appended(base_offset, records, kind, producer_id, sequence))
        if kind == DATA:
            self.sequences[producer_id] += records

    def note_written(self) -> None:
        if self.group_start is None:
            self.group_start = self.written
        self.written = len(self.history)

    @rule(producer_id=st.sampled_from(PRODUCERS), records=st.integers(1, 3))
    def append_data(self, producer_id: int, records: int) -> None:
        batch = transactional(producer_id, self.sequences[producer_id], count=records)
        self.take(append_in_transaction(self.log, batch), records, DATA, producer_id)

    @rule(size=st.integers(0, 100))
    def append_plain(self, size: int) -> None:
        self.take(append(self.log, batch_of(1, value=b"p" * size)), 1, PLAIN)

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        offset = end_transaction(self.log, producer_id, commit=commit)
        self.take(offset, 1, COMMIT if commit else ABORT, producer_id)

    @rule()
    def write(self) -> None:
        self.log.write_queued()
        self.written, self.group_start = len(self.history), None

    @precondition(lambda self: self.written < len(self.history))
    @rule()
    def write_on_full_disk(self) -> None:
        self.files.fill("*.log", room=0)
        with pytest.raises(OSError, match="no room"):
            self.log.write_queued()
        self.files.heal()
        self.cut(self.written if self.group_start is None else self.group_start)

    def cut(self, count: int) -> None:
        """Forget all but the first batches."""
        del self.history[count:]
        self.written, self.group_start = count, None
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        for batch in self.history:
            if batch.kind == DATA:
                self.sequences[batch.producer_id] = batch.sequence + batch.records

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans())
    def commit_whole_transaction(self, producer_id: int, commit: bool) -> None:
        """Write a whole transaction, and let the followers have it."""
        self.append_data(producer_id, 1)
        self.end(producer_id, commit)
        self.write()
        self.log.high_watermark = self.log.log_end_offset

    @rule(data=st.data())
    def commit_some(self, data: st.DataObject) -> None:
        """Let the followers have some more."""
        self.write()
        ends = [b.next_offset for b in self.history if b.next_offset >= self.log.high_watermark]
        if ends:
            self.log.high_watermark = data.draw(st.sampled_from(ends))

    # Ends

    @rule()
    def roll(self) -> None:
        self.write()
        self.log.roll(NOW)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.write()
        ends = [b.next_offset for b in self.history if b.next_offset >= self.log.high_watermark]
        if ends:
            offset = data.draw(st.sampled_from(ends))
            self.log.truncate_to(offset)
            self.cut(sum(b.next_offset <= offset for b in self.history))

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.log.high_watermark))
        self.log.advance_log_start(offset)

    @rule()
    def remove_old_segments(self) -> None:
        self.write()
        self.log.delete_old_segments(NOW)

    # Restarts

    @rule()
    def restart(self) -> None:
        self.write()
        self.log.close()
        self.open(is_clean=True, recovery_point=self.log.written_end)

    @rule(from_start=st.booleans(), garbage=st.binary(max_size=40))
    def crash(self, from_start: bool, garbage: bytes) -> None:
        """Kill the process, or cut the power: what was not flushed of the small files is lost."""
        del self.history[self.written :]
        self.cut(self.written)
        log = self.log
        point = 0 if from_start else log.recovery_point
        for segment in log.segments:
            path = segment.path(".txnindex")
            kept = sum(each.last_offset < point for each in read_txn_index(self.files, path))
            if self.files.inner.exists(path):
                file = self.files.inner.open(path, writable=True)
                file.truncate(kept * 34)
                file.pwritev([garbage], kept * 34)
        self.open(is_clean=False, recovery_point=point)

    def open(self, *, is_clean: bool, recovery_point: int) -> None:
        log = self.log
        high_watermark, start = log.high_watermark, log.log_start_offset
        self.files.opened.clear()
        self.log = reopen(
            log,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=start,
            config=CONFIG,
        )
        self.log.high_watermark = high_watermark

    @rule()
    def release_memory(self) -> None:
        self.log.release_idle_memory()
        self.log.release_idle_memory()

    # Comparing

    @invariant()
    def open_transactions_agree(self) -> None:
        first = self.log.segments.base_offsets[0]
        model = self.ongoing(self.history)
        assert self.log.producers.ongoing == model
        assert list(self.log.producers.ongoing.values()) == sorted(model.values())
        entries = self.log.producers.entries
        known = {
            producer_id: entry.current_txn_first_offset
            for producer_id, entry in entries.items()
            if entry.current_txn_first_offset >= 0
        }
        assert known == model, first

    @invariant()
    def last_stable_offset_agrees(self) -> None:
        """Compare the last stable offset with the model's.

        A start forgets that a marker before the last snapshot was not committed, as Kafka's does.

        The transaction is decided then.
        """
        found, model = self.log.last_stable_offset, self.last_stable_offset()
        assert model <= found <= max(self.log.high_watermark, self.log.log_start_offset)
        if self.log.high_watermark == self.log.log_end_offset:
            assert found == model
        undecided = self.ongoing(self.history[: self.written])
        assert found <= max(min(undecided.values(), default=found), self.log.log_start_offset)

    @invariant()
    def committed_records_agree(self) -> None:
        for max_bytes in (1, 400, 5000):
            found = read_committed(self.log, max_bytes=max_bytes)
            assert [batch.base_offset for batch in found] == self.shown()

    @invariant()
    def a_follower_knows_the_same(self) -> None:
        leader, follower = self.log, new_log(CONFIG.replace(segment_bytes=700))
        if leader.log_start_offset:
            return
        while follower.log_end_offset < leader.written_end:
            offset = follower.log_end_offset
            piece = leader.read(offset, 700, leader.written_end, at_least_one=True)
            assert piece is not None
            content = bytearray(piece.read())
            follower.append_as_follower(content, memoryview(content), 0, len(content), NOW)
            follower.write_queued()
        follower.high_watermark = leader.high_watermark
        assert follower.producers.ongoing == self.ongoing(self.history[: self.written])
        assert follower.last_stable_offset == self.last_stable_offset()
        if leader.last_stable_offset == follower.last_stable_offset:
            found = [batch.base_offset for batch in read_committed(follower)]
            assert found == self.shown()


TestTransactionsAgainstList = TransactionsAgainstList.TestCase
TestTransactionsAgainstList.settings = settings(
    max_examples=50, stateful_step_count=50, deadline=None
)
