"""A day of commits in fast motion: `__consumer_offsets` stays small, and so does a start.

In a test run it is a small fraction of the load, with limits that are smaller by as much.

    OTTLA_COMMITS_PER_MINUTE=1000000 OTTLA_COMMIT_MINUTES=10 pytest -s -k day_of_commits

is the load of a large cluster with the limits of a broker, for ten minutes of simulated time.
Then a request commits 1,000 partitions, and it prints what was found. A whole day takes hours.
"""

from __future__ import annotations

import os
import time

import pytest

from ottla.coordinator.runtime import log_growth
from tests.support.groups import PARTITIONS, TOPIC, Broker, commit, fetch

GROUPS = 12
LOAD = int(os.environ.get("OTTLA_COMMITS_PER_MINUTE", "0"))
MINUTES = int(os.environ.get("OTTLA_COMMIT_MINUTES", "1440"))
LARGE_TOPIC = "large"
LIMIT_BYTES = log_growth.TOTAL_BYTES if LOAD else 40_000
BYTES_A_COMMIT = 150
"""More than a batch with a single commit has."""
STEPS = 12 if LOAD else 1
"""In how many parts the commits of a minute come, with time in between."""


@pytest.mark.timeout(0 if LOAD else 120)
def test_a_day_of_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    if not LOAD:
        monkeypatch.setattr(log_growth, "TOTAL_BYTES", LIMIT_BYTES)
        monkeypatch.setattr(log_growth, "SMALL_BYTES", LIMIT_BYTES)
        monkeypatch.setattr(log_growth, "TINY_BYTES", 1_000)
    broker = Broker(offsets_topic_num_partitions="4")
    topic, partitions = TOPIC, PARTITIONS
    if LOAD:
        topic, partitions = LARGE_TOPIC, 1000
        broker.create_topic(topic, partitions)
    client = broker.connect()
    logs = [runtime.partition.online_log() for runtime in broker.node.groups.runtimes.values()]
    requests = max(LOAD // partitions // STEPS, 1)
    number = largest = 0
    latest: dict[str, int] = {}
    for minute in range(MINUTES):
        highest = 0
        for _ in range(STEPS):
            for _ in range(requests):
                group = f"group-{number % GROUPS}"
                latest[group] = number
                commit(
                    client, {(topic, index): number for index in range(partitions)}, group_id=group
                )
                number += 1
            highest = max(highest, sum(log.size for log in logs))
            broker.pass_ms(60_000 // STEPS)
        largest = max(largest, highest)
        if LOAD:
            left = sum(log.size for log in logs)
            print(f"minute {minute + 1}: at most {highest} bytes, {left} at the end", flush=True)
    written = number * partitions
    assert sum(log.log_end_offset for log in logs) == written
    # What is clean, what may be dirty, and the commits until the next check.
    live = GROUPS * partitions * BYTES_A_COMMIT
    assert largest < live + LIMIT_BYTES + requests * partitions * BYTES_A_COMMIT
    assert largest < written * 40, "it was not kept whole"
    # A start reads the logs, which are bounded, and finds the last commits.
    began = time.process_time()
    broker.crash_and_restart()
    client = broker.connect()
    for group, offset in latest.items():
        found = fetch(client, group_id=group)
        assert set(found.values()) == {offset}
        assert len(found) == partitions
    if LOAD:
        print(f"{written} commits, at most {largest} bytes; start {time.process_time() - began} s")
