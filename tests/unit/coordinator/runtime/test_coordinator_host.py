"""The shards of a topic, with counters: loading, leadership, unloading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.runtime import loader
from ottla.coordinator.runtime.host import CoordinatorHost
from ottla.coordinator.runtime.shard_runtime import RuntimeState
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import Buffer, TaskFailed, run_task
from ottla.records.record import build_batch
from tests.support.counter_shard import TOPIC, Counters


def error_of(host: CoordinatorHost[Any], index: int = 0) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        host.runtime_of(index)
    return refused.value.code


def test_a_new_topic_is_served_at_once() -> None:
    counters = Counters(partitions=3)
    assert counters.host.num_partitions == 3
    assert sorted(counters.host.runtimes) == [0, 1, 2]
    assert all(runtime.shard.is_loaded for runtime in counters.host.active_runtimes())
    assert error_of(counters.host, 3) == ErrorCode.NOT_COORDINATOR


def test_a_restart_loads_what_was_written(counters: Counters) -> None:
    for _ in range(3):
        counters.add("a")
    counters.add("b", 7)
    counters.settle()
    counters.start()
    assert error_of(counters.host) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(ApiError):
        list(counters.host.active_runtimes())
    counters.pass_ms(10)
    assert counters.runtime.shard.numbers == {"a": 3, "b": 7}
    assert counters.runtime.shard.is_loaded


def test_a_broker_that_does_not_lead_yet_serves_nobody(counters: Counters) -> None:
    """Seed 235 of the mixed profile: after a start, metadata that was out of date made it one."""
    host, partition = counters.host, counters.runtime.partition
    leader, partition.leader = partition.leader, None
    host.runtimes.clear()
    host.refresh()
    assert error_of(host) == ErrorCode.NOT_COORDINATOR
    partition.leader = leader
    host.partition_led(partition)
    assert host.runtime_of(0).is_active


def test_a_long_log_is_loaded_in_slices(counters: Counters) -> None:
    for number in range(4000):
        counters.add(f"counter-{number}")
        counters.settle()
    counters.start()
    steps = 0
    while counters.state is RuntimeState.LOADING:
        counters.pass_ms(1)
        steps += 1
    assert steps > 3
    assert len(counters.runtime.shard.numbers) == 4000


def test_garbage_collections_wait_until_all_is_loaded(counters: Counters) -> None:
    for number in range(4000):
        counters.add(f"counter-{number}")
        counters.settle()
    counters.start()
    told: list[bool] = []
    counters.node.pause_collection = told.append
    while counters.state is RuntimeState.LOADING:
        counters.pass_ms(1)
        assert told[0] is True
    assert told == [True, False]
    counters.pass_ms(1000)
    assert told == [True, False]


class Helpers:
    """Helper processes that run a task when they are told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Buffer, Callable[[bytes | TaskFailed], None]]] = []

    def submit(
        self,
        task: str,
        data: Buffer,
        done: Callable[[bytes | TaskFailed], None],
        lane: str = "",
    ) -> None:
        self.waiting.append((task, data, done))

    def run(self, failure: TaskFailed | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for task, data, done in waiting:
            done(run_task(task, data) if failure is None else failure)


def grown(monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> Counters:
    """Return counters whose logs are too large to be loaded on the loop."""
    monkeypatch.setattr(loader, "SMALL_LOG_BYTES", 1000)
    counters = Counters(partitions)
    for number in range(300):
        counters.add(f"counter-{number % 10}", 1)
        counters.settle()
    counters.helpers = Helpers()
    counters.start()
    counters.pass_ms(1)
    return counters


def test_a_large_log_is_decoded_in_a_helper_process(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = grown(monkeypatch)
    helpers = counters.helpers
    assert isinstance(helpers, Helpers)
    assert len(helpers.waiting) == 1
    counters.pass_ms(100)
    assert counters.state is RuntimeState.LOADING
    helpers.run()
    counters.pass_ms(10)
    assert counters.runtime.shard.numbers == {f"counter-{number}": 30 for number in range(10)}


def test_without_helper_processes_the_loop_decodes_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "_ENTRIES_PER_STEP", 50)
    counters = grown(monkeypatch)
    helpers = counters.helpers
    assert isinstance(helpers, Helpers)
    helpers.run(TaskFailed("it ended"))
    steps = 0
    while counters.state is RuntimeState.LOADING:
        counters.pass_ms(1)
        steps += 1
    assert steps > 3
    assert counters.runtime.shard.numbers == {f"counter-{number}": 30 for number in range(10)}


def test_other_shards_serve_while_one_waits_for_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = grown(monkeypatch, partitions=3)
    counters.pass_ms(10)
    assert counters.state is RuntimeState.LOADING
    assert [runtime.state for runtime in counters.host.runtimes.values()] == [
        RuntimeState.LOADING,
        RuntimeState.ACTIVE,
        RuntimeState.ACTIVE,
    ]


def test_leadership_that_goes_while_a_helper_decodes_ends_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counters = grown(monkeypatch)
    helpers = counters.helpers
    assert isinstance(helpers, Helpers)
    counters.elect(counters.node.node_id + 1)
    helpers.run()
    counters.pass_ms(10)
    assert error_of(counters.host) == ErrorCode.NOT_COORDINATOR
    counters.elect(counters.node.node_id)
    counters.pass_ms(10)
    helpers.run()
    counters.pass_ms(10)
    assert counters.read("counter-3").number == 30


def test_records_that_cannot_be_decoded_are_skipped(counters: Counters) -> None:
    counters.add()
    counters.settle()
    log = counters.runtime.partition.online_log()
    newer = [(b"\0\x09what", b"\0\0", 0, ()), (b"\0\0\0\1a", b"\0\x63", 0, ())]
    batch = build_batch(newer, leader_epoch=0)
    log.append_as_leader(batch, memoryview(batch), 0, len(batch), 0, counters.node.wall_ms)
    counters.runtime.partition.as_leader().write()
    counters.start()
    counters.pass_ms(10)
    assert counters.runtime.shard.numbers == {"a": 1}
    (report,) = counters.reports
    assert report.startswith(f"coordinator of {TOPIC}-0: the record at offset 2 was skipped")


def test_nothing_is_served_before_all_that_was_loaded_is_committed(counters: Counters) -> None:
    counters.add("a", 5)
    counters.settle()
    log = counters.runtime.partition.online_log()
    log.high_watermark = 0  # as a new leader has it until its followers fetch
    counters.elect(counters.node.node_id + 1)
    counters.elect(counters.node.node_id)
    log.high_watermark = 0
    counters.pass_ms(50)
    assert error_of(counters.host) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    log.high_watermark = log.log_end_offset
    counters.pass_ms(10)
    assert counters.read().number == 5


def test_a_broker_that_no_longer_leads_unloads(counters: Counters) -> None:
    counters.add("a", 5)
    counters.settle()
    pending, parked = counters.add("a", 1), counters.park()
    counters.elect(counters.node.node_id + 1)
    assert pending.error == parked.error == ErrorCode.NOT_COORDINATOR
    assert error_of(counters.host) == ErrorCode.NOT_COORDINATOR
    assert counters.host.runtimes == {}
    counters.settle()
    counters.elect(counters.node.node_id)
    counters.pass_ms(10)
    assert counters.read().number == 5


def test_a_leader_that_stays_goes_on_in_the_new_epoch(counters: Counters) -> None:
    counters.add("a", 5)
    counters.settle()
    runtime, parked = counters.runtime, counters.park()
    counters.elect(counters.node.node_id)
    assert runtime.leader_epoch == runtime.partition.leader_epoch == 1
    added = counters.add("a", 1)
    counters.settle()
    assert (added.number, parked.number) == (6, 6)
    assert counters.runtime is runtime


def test_a_deleted_topic_ends_all_shards(counters: Counters) -> None:
    counters.add("a", 5)
    counters.settle()
    parked = counters.park()
    counters.delete_topic()
    assert parked.error == ErrorCode.NOT_COORDINATOR
    assert error_of(counters.host) == ErrorCode.NOT_COORDINATOR
    assert counters.host.num_partitions == 0
    counters.create_topic(2)
    assert counters.host.num_partitions == 2
    assert counters.runtime.shard.numbers == {}


def test_leadership_that_goes_during_a_load_ends_it(counters: Counters) -> None:
    counters.add("a", 5)
    counters.settle()
    counters.start()
    counters.elect(counters.node.node_id + 1)
    counters.pass_ms(10)
    assert error_of(counters.host) == ErrorCode.NOT_COORDINATOR
    counters.elect(counters.node.node_id)
    counters.pass_ms(10)
    assert counters.read().number == 5


def test_a_log_that_is_made_late_gets_its_shard(counters: Counters) -> None:
    partition = counters.runtime.partition
    log, partition.log = partition.log, None
    counters.elect(counters.node.node_id + 1)
    counters.elect(counters.node.node_id)
    assert error_of(counters.host) == ErrorCode.NOT_COORDINATOR
    partition.log = log
    counters.host.partition_led(partition)
    assert counters.read().number == 0


def test_a_log_that_cannot_be_read_is_tried_again(counters: Counters) -> None:
    counters.add("a", 5)
    counters.settle()
    counters.start()
    partition = counters.host.runtimes[0].partition
    log = partition.online_log()
    end, log.log_end_offset = log.log_end_offset, 99
    counters.host.runtimes[0].close(ErrorCode.NOT_COORDINATOR)
    counters.host.partition_led(partition)
    counters.pass_ms(10)
    assert error_of(counters.host) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "cannot load" in counters.reports[0]
    log.log_end_offset = end
    counters.pass_ms(1100)
    assert counters.read().number == 5
