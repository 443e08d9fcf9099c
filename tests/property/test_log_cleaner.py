"""The log cleaner against a model, and a clean that ends at any operation of the disk."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.config.topic import LogConfig
from ottla.log.cleaner import cleaning_task
from ottla.log.cleaner.clean_run import CleaningAborted
from ottla.log.cleaner.cleanable import cleanable
from ottla.log.log import Log
from ottla.model.steps import run_to_end
from ottla.records.control import ControlType, build_marker
from ottla.sim.clock import VirtualClock
from ottla.sim.disk.disk import SimDisk
from ottla.sim.disk.faults import Crash, DiskFaults
from ottla.testing.fakes import FakeClock
from tests.support.cleaner import Seen, clean, clean_run, keyed, last_values, seen
from tests.support.log import DIRECTORY, NOW, append_all, new_log, new_resources, read_all, reopen

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=600,
    index_interval_bytes=100,
    delete_retention_ms=100,
)
KEYS = "abcdef"
OPEN_KEYS = "xyz"
"""Keys that only transactions write."""


class CleanedLog(RuleBasedStateMachine):
    """Writes, cleans and crashes; a reader must always end with the last value of each key."""

    log: Log

    @initialize()
    def begin(self) -> None:
        self.log = new_log(CONFIG)
        self.written: dict[int, Seen] = {}
        """Every record by offset, without those of aborted transactions."""
        self.open: dict[int, list[Seen]] = {}
        self.sequences: dict[int, int] = {}
        self.table: dict[bytes, bytes] = {}
        """What a reader has who reads on now and then, within delete.retention.ms."""
        self.position = 0
        self.read_at_ms = self._now_ms()

    def _append(self, batch: bytearray) -> None:
        self.log.append_as_follower(batch, memoryview(batch), 0, len(batch), NOW)
        self.log.write_queued()
        self.log.high_watermark = self.log.log_end_offset

    @rule(
        records=st.lists(
            st.tuples(st.sampled_from(KEYS), st.sampled_from(["1", "22", "3" * 40, None])),
            min_size=1,
            max_size=5,
        ),
        codec=st.sampled_from([0, 0, 3, 4]),
    )
    def produce(self, records: list[tuple[str, str | None]], codec: int) -> None:
        offset = self.log.log_end_offset
        self._append(keyed(*records, codec=codec, base_offset=offset))
        for number, record in enumerate(self._seen(records, offset)):
            self.written[offset + number] = record

    @rule(producer_id=st.sampled_from([1, 2]), key=st.sampled_from(OPEN_KEYS))
    def produce_in_transaction(self, producer_id: int, key: str) -> None:
        offset = self.log.log_end_offset
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 1
        value = f"{producer_id}-{sequence}"
        self._append(
            keyed(
                (key, value),
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
        self.open.setdefault(producer_id, []).extend(self._seen([(key, value)], offset))

    @rule(producer_id=st.sampled_from([1, 2]), commits=st.booleans())
    def end_transaction(self, producer_id: int, commits: bool) -> None:
        records = self.open.pop(producer_id, [])
        if not records:
            return
        marker = ControlType.COMMIT if commits else ControlType.ABORT
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
        if commits:
            self.written.update({record.offset: record for record in records})

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(keys=st.sampled_from([1, 3, 1000]), chunk=st.sampled_from([70, 400, 1 << 16]))
    def clean(self, keys: int, chunk: int) -> None:
        if not cleanable(self.log, NOW).cleanable_bytes:
            return
        before = {record.offset for record in seen(self.log)}
        clean(self.log, map_bytes=208 * (keys + 10), chunk_bytes=chunk)
        after = {record.offset for record in seen(self.log)}
        assert after <= before, "a clean adds nothing"
        assert all(o in after for o in before if o >= self.log.active.base_offset)

    @rule(milliseconds=st.sampled_from([1, 60, 200]))
    def wait(self, milliseconds: int) -> None:
        if self._now_ms() + milliseconds >= self.read_at_ms + CONFIG.delete_retention_ms:
            self.read_on()
        clock = self.log.resources.clock
        assert isinstance(clock, FakeClock)
        clock.now_ms += milliseconds

    @rule()
    def read_on(self) -> None:
        """Read on to the end: a reader that keeps up sees every deletion."""
        stable = self.log.last_stable_offset
        for record in self._committed():
            if self.position <= record.offset < stable and record.key is not None:
                self.table.pop(record.key, None)
                if record.value is not None:
                    self.table[record.key] = record.value
        self.position, self.read_at_ms = stable, self._now_ms()
        expected = [each for offset, each in sorted(self.written.items()) if offset < stable]
        assert self.table == {k: v for k, v in last_values(expected).items() if v is not None}

    @precondition(lambda self: not self.sequences)  # producers would have to be set back as well
    @rule(back=st.integers(1, 12))
    def truncate(self, back: int) -> None:
        """Cut off the last batches, as a follower does with what was never committed."""
        committed = max(self.log.cleaned_upto, self.position, self.log.log_start_offset)
        starts = [batch.base_offset for batch in read_all(self.log)]
        offset = ([each for each in starts if each >= committed] or [committed])[-back:][0]
        self.log.high_watermark = min(offset, self.log.high_watermark)
        self.log.truncate_to(offset)
        self.written = {each: record for each, record in self.written.items() if each < offset}
        assert self.log.log_end_offset == offset

    @rule(room=st.integers(0, 40))
    def crash_in_a_clean(self, room: int) -> None:
        """End a clean after some steps, and start without a clean shutdown."""
        if not cleanable(self.log, NOW).cleanable_bytes:
            return
        steps = clean_run(self.log, chunk_bytes=400).steps()
        for _ in islice(steps, room):
            pass
        steps.close()
        self.restart(is_clean=False)

    def _now_ms(self) -> int:
        return self.log.resources.clock.wall_ms()

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        cleaned_upto, now_ms = self.log.cleaned_upto, self.log.resources.clock.wall_ms()
        if is_clean:
            self.log.close()
        self.log = reopen(self.log, is_clean=is_clean)
        self.log.cleaned_upto = cleaned_upto
        clock = self.log.resources.clock
        assert isinstance(clock, FakeClock)
        clock.now_ms = now_ms

    @invariant()
    def readers_see_the_last_values(self) -> None:
        stable = self.log.last_stable_offset
        expected = [record for offset, record in sorted(self.written.items()) if offset < stable]
        found = [record for record in self._committed() if record.offset < stable]
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets)), "in the order of the log"
        assert all(self.written[record.offset] == record for record in found)
        assert last_values(found) == last_values(expected)

    @invariant()
    def producers_are_known(self) -> None:
        for producer_id, sequence in self.sequences.items():
            assert self.log.producers.entries[producer_id].last_sequence == sequence - 1

    def _committed(self) -> list[Seen]:
        """Return what a read_committed reader sees below the last stable offset."""
        return [record for record in seen(self.log) if record.offset in self.written]

    def _seen(self, records: list[tuple[str, str | None]], offset: int) -> list[Seen]:
        return [
            Seen(offset + n, key.encode(), None if value is None else value.encode(), NOW + n)
            for n, (key, value) in enumerate(records)
        ]


class CleanedLogInArrays(CleanedLog):
    """The same with numpy, which is for large logs otherwise."""

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.limit = cleaning_task.ARRAYS_FROM_BYTES
        cleaning_task.ARRAYS_FROM_BYTES = 0  # type: ignore[misc]

    def teardown(self) -> None:
        cleaning_task.ARRAYS_FROM_BYTES = self.limit  # type: ignore[misc]


TestCleanedLog = CleanedLog.TestCase
TestCleanedLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCleanedLogInArrays = CleanedLogInArrays.TestCase
TestCleanedLogInArrays.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), min_size=2, max_size=6),
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
    st.integers(0, 23),
    st.sampled_from(("begin", "map", "segment", "filter", "finish")),
)
def test_a_cut_in_a_clean_leaves_what_was_before_it(
    written: list[list[str]], instead: list[str], cut: int, task: str
) -> None:
    """Each list is a closed segment, with a batch for each key. The cut comes before any swap."""
    log = new_log(CONFIG)

    def fill(keys: list[str]) -> None:
        for key in keys:
            append_all(log, keyed((key, f"{log.log_end_offset}")))
        log.roll(NOW)

    def cut_and_fill() -> None:
        log.high_watermark = min(cut, log.high_watermark)
        log.truncate_to(cut)
        fill([key.upper() for key in instead])

    for keys in written:
        fill(keys)
    before = [record for record in seen(log) if record.offset < cut]
    with suppress(CleaningAborted):
        run_to_end(clean_run(log, after=task, then=cut_and_fill).steps())
    after = [(key.upper().encode(), b"%d" % n) for n, key in enumerate(instead, len(before))]
    assert last_values(seen(log)) == last_values(before) | dict(after)


def dirty_log(disk: SimDisk) -> Log:
    """Return a log on disk with several segments, tombstones and an aborted transaction."""
    disk.make_dirs(DIRECTORY)
    resources = new_resources(disk)
    log = new_log(CONFIG, resources)
    for number in range(24):
        value = None if number % 7 == 3 else f"{number}" * (number % 5 + 1)
        batch = keyed(
            (f"{number % 9}", value),
            ("same", str(number)),
            base_offset=log.log_end_offset,
            codec=(0, 4)[number % 2],
        )
        log.append_as_follower(batch, memoryview(batch), 0, len(batch), NOW)
        log.write_queued()
    log.high_watermark = log.log_end_offset
    log.roll(NOW)
    log.flush()
    disk.sync_dir("/data")
    disk.sync_dir("/")
    return log


@pytest.mark.parametrize("loss", ["kill", "lose_unsynced", "lose_power"])
def test_a_clean_that_ends_at_any_operation_leaves_a_valid_log(loss: str) -> None:
    operations, is_done = 0, False
    while not is_done:
        faults = DiskFaults(Random(operations), ["/data"])
        disk = SimDisk(VirtualClock(), Random(operations), faults)
        log = dirty_log(disk)
        before = {record.offset: record for record in seen(log)}
        faults.operations_until_crash = operations
        try:
            run_to_end(clean_run(log).steps())
            is_done = True
        except Crash:
            pass
        faults.heal()
        getattr(disk, loss)()
        disk.restart()
        again = reopen(log, recovery_point=log.recovery_point)
        found = seen(again)
        assert all(before[record.offset] == record for record in found)
        assert last_values(found) == last_values(list(before.values()))
        assert again.log_end_offset == log.log_end_offset
        clean(again)
        assert last_values(seen(again)) == last_values(list(before.values()))
        operations += 1
    assert operations > 30


@given(st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_a_clean_on_a_full_disk_leaves_the_log_as_it_is(seed: int, room: int) -> None:
    faults = DiskFaults(Random(seed), ["/data"])
    disk = SimDisk(VirtualClock(), Random(seed), faults)
    log = dirty_log(disk)
    before = list(seen(log))
    faults.volumes[0].free_bytes = room * 20
    try:
        run_to_end(clean_run(log).steps())
    except OSError:
        faults.heal()
        names = [entry.name for entry in disk.list(DIRECTORY)]
        assert not any(name.endswith((".cleaned", ".swap")) for name in names)
    faults.heal()
    assert last_values(seen(log)) == last_values(before)
    assert len(read_all(log)) <= len(before)


WRITTEN = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from(KEYS), st.sampled_from(["1", "3" * 40, "4" * 40, None])),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from([0, 3, 4]),
        st.sampled_from([-1, -1, 1, 2]),
        st.sampled_from([None, None, None, ControlType.COMMIT, ControlType.ABORT]),
    ),
    min_size=8,
    max_size=40,
)


@given(WRITTEN, st.sampled_from([70, 400, 1 << 16]), st.integers(0, 30), st.booleans())
@settings(max_examples=40, deadline=None)
def test_both_ways_to_clean_write_the_same_bytes(written, chunk, cleaned_upto, is_tiered) -> None:  # type: ignore[no-untyped-def]
    files = []
    for limit in (0, 1 << 30):
        log = new_log(CONFIG.replace(remote_storage_enable=is_tiered))
        sequences: dict[int, int] = {}
        for number, (records, codec, producer_id, marker) in enumerate(written):
            fields: dict[str, int | bool] = {"base_offset": log.log_end_offset}
            fields["leader_epoch"] = number // 4
            if producer_id >= 0:
                sequence = sequences.get(producer_id, 0)
                sequences[producer_id] = sequence + len(records)
                fields |= {
                    "producer_id": producer_id,
                    "producer_epoch": 0,
                    "base_sequence": sequence,
                    "is_transactional": marker is not None,
                }
            batches = [keyed(*records, codec=codec, **fields)]
            if producer_id >= 0 and marker is not None:
                offset = log.log_end_offset + len(records)
                batches.append(
                    build_marker(
                        marker,
                        producer_id=producer_id,
                        producer_epoch=0,
                        coordinator_epoch=0,
                        timestamp=NOW,
                        base_offset=offset,
                    )
                )
            for batch in batches:
                log.append_as_follower(batch, memoryview(batch), 0, len(batch), NOW)
                log.write_queued()
        log.high_watermark = log.log_end_offset
        log.roll(NOW)
        before = cleaning_task.ARRAYS_FROM_BYTES
        cleaning_task.ARRAYS_FROM_BYTES = limit  # type: ignore[misc]
        try:
            clean(log, chunk_bytes=chunk)
            clock = log.resources.clock
            assert isinstance(clock, FakeClock)
            clock.now_ms += 1000
            log.cleaned_upto = min(cleaned_upto, log.log_end_offset)
            if cleanable(log, NOW).cleanable_bytes:
                clean(log, chunk_bytes=chunk)
        finally:
            cleaning_task.ARRAYS_FROM_BYTES = before  # type: ignore[misc]
        names = sorted(
            entry.name
            for entry in log.resources.files.list(log.directory)
            if entry.name.endswith(("log", "index"))
        )
        read = log.resources.files.open
        files.append([(name, read(f"{log.directory}/{name}").pread(1 << 20, 0)) for name in names])
    assert files[0] == files[1]
