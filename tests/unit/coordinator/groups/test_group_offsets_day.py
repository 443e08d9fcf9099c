"""A day of commits in fast motion: `__consumer_offsets` stays small, and so does a start.

In a test run it is a small fraction of the load, with limits that are smaller by as much.

    OTTLA_COMMIT_HOURS=24 pytest -s -k whole_day_of_a_large_cluster

is the load of a large cluster, a million commits in each minute of simulated time, with the limits
of a broker. It prints a table by hours. The first commits of each hour are requests. They change
all offsets, and then the batches that the coordinator has written for them are appended again until
the hour has its 60 million commits: to encode so many requests would take most of a day. Everything
after that is as always: the leader's append, timers, the cleaner. Each hour ends with a crash.
"""

from __future__ import annotations

import os
import time

import pytest

from ottla.coordinator.runtime import log_growth
from ottla.log.log import Log
from ottla.records.batch import scan
from ottla.replication.partition import Partition
from tests.support.groups import PARTITIONS, TOPIC, Broker, commit, fetch

GROUPS = 12
MINUTES = 1440
LIMIT_BYTES = 40_000
BYTES_A_COMMIT = 150
"""More than a batch with a single commit has."""

HOURS = int(os.environ.get("OTTLA_COMMIT_HOURS", "0"))
COMMITS_A_MINUTE = 1_000_000
LARGE_TOPIC, LARGE_PARTITIONS = "large", 1000
NO_OFFSET = bytes(8)
STEP_MS = 5000
"""How much time passes between two parts of the commits of a minute."""


def test_a_day_of_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_growth, "TOTAL_BYTES", LIMIT_BYTES)
    monkeypatch.setattr(log_growth, "SMALL_BYTES", LIMIT_BYTES)
    monkeypatch.setattr(log_growth, "TINY_BYTES", 1_000)
    broker = Broker(offsets_topic_num_partitions="4")
    client = broker.connect()
    logs = logs_of(broker)
    number = largest = 0
    latest: dict[str, int] = {}
    for _ in range(MINUTES):
        group = f"group-{number % GROUPS}"
        latest[group] = number
        commit(client, {(TOPIC, index): number for index in range(PARTITIONS)}, group_id=group)
        number += 1
        largest = max(largest, sum(log.size for log in logs))
        broker.pass_ms(60_000)
    written = number * PARTITIONS
    assert sum(log.log_end_offset for log in logs) == written
    # What is clean, what may be dirty, and the commits until the next check.
    live = GROUPS * PARTITIONS * BYTES_A_COMMIT
    assert largest < live + LIMIT_BYTES + PARTITIONS * BYTES_A_COMMIT
    assert largest < written * 40, "it was not kept whole"
    # A start reads the logs, which are bounded, and finds the last commits.
    broker.crash_and_restart()
    check_latest(broker, latest, PARTITIONS)


def logs_of(broker: Broker) -> list[Log]:
    return [runtime.partition.online_log() for runtime in broker.node.groups.runtimes.values()]


def check_latest(broker: Broker, latest: dict[str, int], partitions: int) -> None:
    """Check that the last commit of each group is there."""
    client = broker.connect()
    for group, offset in latest.items():
        found = fetch(client, group_id=group)
        assert set(found.values()) == {offset}
        assert len(found) == partitions


@pytest.mark.skipif(not HOURS, reason="OTTLA_COMMIT_HOURS is not set")
@pytest.mark.timeout(0)
def test_a_whole_day_of_a_large_cluster() -> None:
    broker = Broker(offsets_topic_num_partitions="4")
    broker.create_topic(LARGE_TOPIC, LARGE_PARTITIONS)
    print("\n| hour | commits so far | written | largest size | at the end | start | CPU |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    number = total = written = 0
    steps = 60 * 60_000 // STEP_MS
    requests_a_step = COMMITS_A_MINUTE // LARGE_PARTITIONS * STEP_MS // 60_000
    for hour in range(1, HOURS + 1):
        began = time.process_time()
        latest: dict[str, int] = {}
        requests: list[tuple[Partition, list[bytes]]] = []
        for group in (f"group-{each}" for each in range(GROUPS)):
            number += 1
            latest[group] = number
            requests.append(committed(broker, group, number))
            total += LARGE_PARTITIONS
        logs, largest = logs_of(broker), 0
        for step in range(steps):
            for at in range(requests_a_step):
                partition, batches = requests[(step * requests_a_step + at) % GROUPS]
                for batch in batches:
                    broker.node.append_internal(partition, bytearray(batch), lambda code: None)
                    written += len(batch)
                total += LARGE_PARTITIONS
            broker.settle()
            largest = max(largest, sum(log.size for log in logs))
            broker.pass_ms(STEP_MS)
        size = sum(log.size for log in logs)
        assert sum(log.log_end_offset for log in logs) == total
        middle = time.process_time()
        broker.crash_and_restart()
        check_latest(broker, latest, LARGE_PARTITIONS)
        ended = time.process_time()
        print(
            f"| {hour} | {total / 1e6:.1f} million | {written / 1e9:.1f} GB"
            f" | {largest / 1e6:.1f} MB | {size / 1e6:.1f} MB"
            f" | {ended - middle:.2f} s | {middle - began:.0f} s |",
            flush=True,
        )
        live = GROUPS * LARGE_PARTITIONS * BYTES_A_COMMIT
        step_bytes = requests_a_step * LARGE_PARTITIONS * BYTES_A_COMMIT
        assert largest < live + log_growth.TOTAL_BYTES + step_bytes


def committed(broker: Broker, group: str, number: int) -> tuple[Partition, list[bytes]]:
    """Commit an offset for all partitions; return the batches that the coordinator has written."""
    partition = broker.node.groups.runtime_of(group).partition
    log = partition.online_log()
    before = log.log_end_offset
    offsets = {(LARGE_TOPIC, index): number for index in range(LARGE_PARTITIONS)}
    commit(broker.connect(), offsets, group_id=group)
    piece = log.read(before, 1 << 24, log.log_end_offset, at_least_one=True)
    assert piece is not None
    assert log.log_end_offset == before + LARGE_PARTITIONS
    data = piece.file.pread(piece.length, piece.position)
    found = scan(data, 0, len(data))
    return partition, [NO_OFFSET + data[each.position + 8 : each.end] for each in found]
