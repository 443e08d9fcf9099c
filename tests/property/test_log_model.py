"""The log against a list: appends, failures, rolls, truncation, retention, crashes."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import Files
from ottla.records.batch import scan
from ottla.server.os_files import OsFiles
from ottla.testing.faulty_files import FaultyFiles
from tests.support.log import (
    DIRECTORY,
    NOW,
    append,
    batch_of,
    new_log,
    new_resources,
    read_all,
    reopen,
)

CONFIG = LogConfig(
    segment_bytes=1200,
    index_interval_bytes=150,
    segment_index_bytes=96,
    segment_ms=500,
    retention_ms=-1,
)
PRODUCERS = (1, 2)


class Appended(NamedTuple):
    """A batch in the model."""

    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    timestamp: int
    size: int
    leader_epoch: int
    producer_id: int
    base_sequence: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


class LogAgainstList(RuleBasedStateMachine):
    """Each rule changes the log and the model in the same way; the invariants compare them."""

    log: Log

    def make_files(self) -> Files:
        return MemoryFiles()

    def directory(self) -> str:
        return DIRECTORY

    @initialize()
    def begin(self) -> None:
        self.files = FaultyFiles(self.make_files())
        self.log = new_log(CONFIG, new_resources(self.files, limit=8), self.directory())
        self.history: list[Appended] = []
        self.queued: list[Appended] = []
        self.before_group: tuple[list[Appended], int] | None = None
        self.removed_state = 0
        self.leader_epoch = 0
        self.now = NOW
        self.start = self.end = 0

    # What the model says

    @property
    def all_batches(self) -> list[Appended]:
        return self.history + self.queued

    def next_offset(self) -> int:
        return self.queued[-1].next_offset if self.queued else self.end

    def last_of(self, producer_id: int) -> list[Appended]:
        batches = [
            b
            for b in self.all_batches
            if b.producer_id == producer_id and b.base_offset >= self.removed_state
        ]
        return batches[-5:]

    def next_sequence(self, producer_id: int) -> int:
        last = self.last_of(producer_id)
        return last[-1].base_sequence + last[-1].count if last else 0

    def readable(self) -> list[int]:
        return [b.base_offset for b in self.history if b.next_offset > self.start]

    # Appending

    def take(self, count: int, size: int, producer_id: int, sequence: int) -> None:
        batch = batch_of(
            count,
            timestamp=self.now,
            value=b"x" * size,
            producer_id=producer_id,
            base_sequence=sequence,
        )
        expected = self.next_offset()
        written = self.log.written_end
        given = append(self.log, batch, leader_epoch=self.leader_epoch, now_ms=self.now)
        assert given == expected
        if self.log.written_end != written:
            self.write_model()  # for a roll: a part of the group
        self.queued.append(
            Appended(given, count, self.now, len(batch), self.leader_epoch, producer_id, sequence)
        )

    def write_model(self) -> None:
        if self.before_group is None:
            self.before_group = (list(self.history), self.end)
        self.history += self.queued
        self.queued = []
        self.end = self.history[-1].next_offset

    def write_group_model(self) -> None:
        if self.queued:
            self.write_model()
        self.before_group = None

    def undo_model(self) -> None:
        self.queued = []
        if self.before_group is not None:
            self.history, self.end = self.before_group
            self.before_group = None

    @rule(count=st.integers(1, 4), size=st.integers(0, 150))
    def append_plain(self, count: int, size: int) -> None:
        self.take(count, size, -1, -1)

    @rule(count=st.integers(1, 4), producer_id=st.sampled_from(PRODUCERS))
    def append_idempotent(self, count: int, producer_id: int) -> None:
        self.take(count, 10, producer_id, self.next_sequence(producer_id))

    @rule(producer_id=st.sampled_from(PRODUCERS), number=st.integers(0, 4))
    def append_duplicate(self, producer_id: int, number: int) -> None:
        last = self.last_of(producer_id)
        if number < len(last):
            original = last[number]
            batch = batch_of(
                original.count,
                timestamp=self.now,
                producer_id=producer_id,
                base_sequence=original.base_sequence,
            )
            end = self.log.log_end_offset
            assert append(self.log, batch, now_ms=self.now) == original.base_offset
            assert self.log.log_end_offset == end

    @rule(producer_id=st.sampled_from(PRODUCERS), gap=st.integers(1, 3))
    def append_gap(self, producer_id: int, gap: int) -> None:
        if self.last_of(producer_id):
            sequence = self.next_sequence(producer_id) + gap
            batch = batch_of(1, producer_id=producer_id, base_sequence=sequence)
            with pytest.raises(ApiError) as refused:
                append(self.log, batch)
            assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def write(self) -> None:
        self.log.write_queued()
        self.write_group_model()
        self.log.high_watermark = self.log.log_end_offset

    @precondition(lambda self: self.queued)
    @rule(room=st.integers(0, 100))
    def write_on_full_disk(self, room: int) -> None:
        self.files.fill("*.log", room=min(room, sum(b.size for b in self.queued) - 1))
        with pytest.raises(OSError, match="no room"):
            self.log.write_queued()
        self.files.heal()
        self.undo_model()

    @rule(ms=st.integers(0, 400))
    def let_time_pass(self, ms: int) -> None:
        self.now += ms

    @rule()
    def elect(self) -> None:
        self.leader_epoch += 1

    # Ends

    @rule()
    def roll(self) -> None:
        self.write()
        self.log.roll(self.now)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.write()
        ends = [b.next_offset for b in self.history if b.next_offset >= self.start]
        offset = data.draw(st.sampled_from([self.start, *ends] if not self.readable() else ends))
        self.log.truncate_to(offset)
        self.history = [b for b in self.history if b.next_offset <= offset]
        self.end = offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.write()
        offset = data.draw(st.integers(self.start, self.end))
        self.log.advance_log_start(offset)
        self.start = max(self.start, offset)

    @rule(kept=st.integers(0, 3000))
    def retain_by_size(self, kept: int) -> None:
        self.write()
        live = sum(b.size for b in self.history if b.next_offset > self.start)
        self.log.reconfigure(CONFIG.replace(retention_bytes=kept))
        self.log.delete_old_segments(self.now)
        self.log.reconfigure(CONFIG)
        assert self.log.size >= min(live, kept)
        self.follow_log_start()

    @rule(age=st.integers(0, 2000))
    def retain_by_time(self, age: int) -> None:
        self.write()
        self.log.reconfigure(CONFIG.replace(retention_ms=age))
        self.log.delete_old_segments(self.now)
        self.log.reconfigure(CONFIG)
        young = [b.base_offset for b in self.history if self.now - b.timestamp <= age]
        assert self.log.log_start_offset <= max(min(young, default=self.end), self.start)
        self.follow_log_start()

    def follow_log_start(self) -> None:
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset

    # Restarts

    @rule()
    def restart(self) -> None:
        self.write()
        self.log.close()
        notes: list[str] = []
        self.open(is_clean=True, recovery_point=self.end, notes=notes)
        assert not notes

    def open(self, *, is_clean: bool, recovery_point: int, notes: list[str]) -> None:
        self.files.opened.clear()
        self.log = reopen(
            self.log,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            notes=notes,
            config=CONFIG,
        )

    @rule(garbage=st.binary(max_size=80), recovery=st.integers(0, 3))
    def crash(self, garbage: bytes, recovery: int) -> None:
        """Kill the process: queued batches are lost, and a torn write may leave bytes."""
        self.queued, self.before_group = [], None
        active = self.log.active
        file = self.files.inner.open(active.path(".log"), writable=True)
        file.truncate(active.size)
        file.pwritev([garbage], active.size)
        point = self.log.recovery_point if recovery else 0
        self.open(is_clean=False, recovery_point=point, notes=[])

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Keep only a part of what was not flushed."""
        active, point = self.log.active, self.log.recovery_point
        if active.base_offset > point:
            return  # the active segment alone would not be all that is lost
        self.queued, self.before_group = [], None
        flushed = sum(b.size for b in self.history if active.base_offset <= b.base_offset < point)
        kept = data.draw(st.integers(min(flushed, active.size), active.size))
        self.files.inner.open(active.path(".log"), writable=True).truncate(kept)
        position, survivors = 0, []
        for batch in self.history:
            if batch.base_offset >= active.base_offset:
                position += batch.size
            if position <= kept:
                survivors.append(batch)
        lost = len(survivors) != len(self.history)
        self.history = survivors
        if lost:
            self.end = survivors[-1].next_offset if survivors else self.end
            self.end = max(self.end, active.base_offset) if survivors else active.base_offset
        notes: list[str] = []
        self.open(is_clean=False, recovery_point=point, notes=notes)
        if self.end < self.start:  # nothing is left: the log begins again
            self.end = self.removed_state = self.start

    @rule(data=st.data())
    def lose_indexes(self, data: st.DataObject) -> None:
        self.write()
        self.log.close()
        for entry in self.files.list(self.log.directory):
            if entry.name.endswith(("index", "timeindex")) and data.draw(st.booleans()):
                path = f"{self.log.directory}/{entry.name}"
                if data.draw(st.booleans()):
                    self.files.unlink(path)
                else:
                    self.files.inner.open(path, writable=True).truncate(entry.size + 5)
        self.open(is_clean=True, recovery_point=self.end, notes=[])

    @rule()
    def release_memory(self) -> None:
        self.log.release_idle_memory()

    # Comparing

    @invariant()
    def offsets_agree(self) -> None:
        log = self.log
        assert log.log_start_offset == self.start
        assert log.written_end == self.end
        assert log.log_end_offset == self.next_offset()
        assert log.recovery_point <= log.written_end
        assert log.segments.base_offsets == sorted(log.segments.base_offsets)
        assert log.active.is_active

    @invariant()
    def batches_agree(self) -> None:
        self.log.high_watermark = self.log.written_end
        assert [b.base_offset for b in read_all(self.log, max_bytes=300)] == self.readable()

    @invariant()
    def producers_agree(self) -> None:
        for producer_id in PRODUCERS:
            entry = self.log.producers.entries.get(producer_id)
            known = [(b.base_sequence, b.base_offset) for b in entry.batches] if entry else []
            model = [(b.base_sequence, b.base_offset) for b in self.last_of(producer_id)]
            assert known == model

    @invariant()
    def epochs_agree(self) -> None:
        for batch in self.history:
            if batch.next_offset > self.start:
                found = self.log.leader_epochs.epoch_for_offset(batch.next_offset - 1)
                assert found == batch.leader_epoch

    @rule(data=st.data())
    def read_from_anywhere(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        upto = data.draw(st.integers(offset, self.end))
        max_bytes = data.draw(st.integers(0, 600))
        piece = self.log.read(offset, max_bytes, upto, at_least_one=True)
        wanted = [
            b for b in self.history if b.next_offset > offset and b.next_offset <= max(upto, 0)
        ]
        assert (piece is not None) == bool(wanted)
        if piece is not None:
            batches = list(scan(piece.read(), 0, piece.length))
            assert batches[0].base_offset == wanted[0].base_offset
            assert len(batches) <= len(wanted)
            assert piece.length <= max(max_bytes, wanted[0].size)
            available = self.log.bytes_available(offset, upto)
            assert available == sum(b.size for b in wanted)

    @rule(data=st.data())
    def find_timestamp(self, data: st.DataObject) -> None:
        timestamp = data.draw(st.integers(NOW, self.now + 1))
        found = self.log.offset_for_timestamp(timestamp)
        wanted = [
            b for b in self.history if b.timestamp >= timestamp and b.next_offset > self.start
        ]
        if not wanted:
            assert found is None
        else:
            assert found is not None
            assert found.offset == max(wanted[0].base_offset, self.start)
            assert found.timestamp == wanted[0].timestamp


class LogOnRealFiles(LogAgainstList):
    """The same on the operating system's files."""

    tmp: pytest.TempPathFactory

    def make_files(self) -> Files:
        return OsFiles()

    def directory(self) -> str:
        return f"{self.tmp.mktemp('log')}/t-0"


LogAgainstList.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
TestLogAgainstList = LogAgainstList.TestCase


def test_log_on_real_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    LogOnRealFiles.tmp = tmp_path_factory
    run_state_machine_as_test(
        LogOnRealFiles, settings=settings(max_examples=15, stateful_step_count=30, deadline=None)
    )
