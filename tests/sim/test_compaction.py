"""A broker that cleans a compacted topic, and crashes at any operation, by kill or power failure.

Whatever was acknowledged is there afterwards, as the last value of its key.
"""

from __future__ import annotations

from random import Random

import pytest

from ottla.log.cleaner.cleaning_session import CleaningSession
from ottla.log.log import Log
from ottla.model.ids import TopicPartition
from ottla.records.batch import Batch
from ottla.records.record import build_batch
from ottla.sim.disk.faults import Crash
from ottla.sim.script import Script
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.cleaner import seen
from tests.support.sim_script import PRODUCE_VERSION, TOPIC, create_topic

SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.initial.task.delay.ms": "10",
}
KEYS = [b"k%d" % number for number in range(6)]


class CompactedBroker:
    """A broker with a compacted topic, and what each key may have."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.script = Script(SETTINGS)
        create_topic(
            self.script,
            cleanup_policy="compact",
            internal_segment_bytes="500",
            min_cleanable_dirty_ratio="0.01",
            delete_retention_ms="700",
            flush_messages="1",
            file_delete_delay_ms="100",
        )
        self.possible: dict[bytes, set[bytes | None]] = {key: {None} for key in KEYS}
        self.number = self.cleans = self.crashes = 0

    def log(self) -> Log:
        log = self.script.node.store.get(TopicPartition(TOPIC, 0))
        assert log is not None
        return log

    def produce(self) -> None:
        self.number += 1
        key = self.chance.choice(KEYS)
        value = None if self.chance.random() < 0.2 else b"%d" % self.number * 9
        now_ms = self.script.machine.clock.wall_ms()
        batch = bytes(build_batch([(key, value, now_ms, ())]))
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout=1000, topic_data=[topic])
        self.possible[key].add(value)  # it may be there, even if nobody hears of it
        reply = self.script.ask(request, PRODUCE_VERSION)
        assert isinstance(reply, ProduceResponse)
        assert reply.responses[0].partition_responses[0].error_code == 0
        self.possible[key] = {value}

    def let_it_clean(self) -> None:
        """Let time pass, with all work in the background."""
        for _ in range(self.chance.choice((20, 60))):
            self.script.pass_time(20)
            self.script.machine.background.run_one()
            self.script.wake()

    def step(self) -> None:
        is_dead = False
        if self.chance.random() < 0.3:
            self.script.faults.operations_until_crash = self.chance.randrange(60)
        try:
            for _ in range(self.chance.choice((1, 5, 12))):
                self.produce()
            self.let_it_clean()
        except Crash:
            self.crashes += 1
            is_dead = True
        cleaner = self.script.node.hosted_logs.cleaning.cleaner
        self.cleans += 0 if cleaner is None else cleaner.cleans
        self.script.faults.heal()
        if is_dead or self.chance.random() < 0.5:
            self.crash()
        self.check()

    def crash(self) -> None:
        if self.chance.random() < 0.5:
            self.script.kill()
        else:
            self.script.disk.lose_power()
        self.script.start()
        self.script.finish_background()
        self.script.wake()

    def check(self) -> None:
        log = self.log()
        log.high_watermark = log.log_end_offset
        records = seen(log)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        table = {record.key: record.value for record in records}
        for key, values in self.possible.items():
            assert table.get(key) in values, f"{key!r} is {table.get(key)!r}, not one of {values}"


def run(seed: int) -> CompactedBroker:
    broker = CompactedBroker(seed)
    for _ in range(10):
        broker.step()
    return broker


def run_all(seeds: int) -> list[CompactedBroker]:
    return [run(seed) for seed in range(seeds)]


def test_acknowledged_values_survive_cleans_and_crashes() -> None:
    brokers = run_all(20)
    assert sum(broker.cleans for broker in brokers) > 50
    assert sum(broker.crashes for broker in brokers) > 20


def test_a_cleaner_that_drops_the_last_record_of_a_batch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keep_none(self: CleaningSession, chunk: bytes, batch: Batch) -> None:
        self._keep_header(batch)

    monkeypatch.setattr(CleaningSession, "_keep", keep_none)
    with pytest.raises(AssertionError, match="not one of"):
        run_all(20)


def test_a_swap_that_does_not_wait_for_the_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.sim.disk.file import SimFile

    sync = SimFile.sync

    def forget(self: SimFile) -> None:
        if not self.path.endswith((".log.cleaned", ".index.cleaned", ".timeindex.cleaned")):
            sync(self)

    monkeypatch.setattr(SimFile, "sync", forget)
    with pytest.raises(AssertionError):
        run_all(60)
