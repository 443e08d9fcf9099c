"""A day of commits in fast motion: `__consumer_offsets` stays small, and so does a start.

In a test run it is a small fraction of the load, with limits that are smaller by as much.
OTTLA_COMMITS_PER_MINUTE=1000000 is the whole load, with the limits of a broker; that takes hours.
"""

from __future__ import annotations

import os

import pytest

from ottla.coordinator.runtime import log_growth
from tests.support.groups import PARTITIONS, TOPIC, Broker, commit, fetch

MINUTES = 24 * 60
GROUPS = 12
LOAD = int(os.environ.get("OTTLA_COMMITS_PER_MINUTE", "0"))
LIMIT_BYTES = log_growth.TOTAL_BYTES if LOAD else 40_000
BYTES_A_COMMIT = 150
"""More than a batch with a single commit has."""


@pytest.mark.timeout(0 if LOAD else 120)
def test_a_day_of_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    if not LOAD:
        monkeypatch.setattr(log_growth, "TOTAL_BYTES", LIMIT_BYTES)
        monkeypatch.setattr(log_growth, "SMALL_BYTES", LIMIT_BYTES)
        monkeypatch.setattr(log_growth, "TINY_BYTES", 1_000)
    broker = Broker(offsets_topic_num_partitions="4")
    client = broker.connect()
    logs = [runtime.partition.online_log() for runtime in broker.node.groups.runtimes.values()]
    requests = max(LOAD // PARTITIONS, 1)
    largest = 0
    for minute in range(MINUTES):
        for number in range(requests):
            group = f"group-{(minute + number) % GROUPS}"
            commit(client, {(TOPIC, index): minute for index in range(PARTITIONS)}, group_id=group)
        broker.pass_ms(60_000)
        largest = max(largest, sum(log.size for log in logs))
    written = MINUTES * requests * PARTITIONS
    assert sum(log.log_end_offset for log in logs) == written
    # What is clean, what may be dirty, and a minute of commits until the next check.
    live = GROUPS * PARTITIONS * BYTES_A_COMMIT
    assert largest < live + LIMIT_BYTES + requests * PARTITIONS * BYTES_A_COMMIT
    assert largest < written * 40, "it was not kept whole"
    # A start reads the logs, which are bounded, and finds the last commits.
    broker.crash_and_restart()
    client = broker.connect()
    for back in range(min(GROUPS, requests + 5)):
        minute = MINUTES - 1 - back
        found = fetch(client, group_id=f"group-{minute % GROUPS}")
        assert set(found.values()) <= {minute, *range(minute, MINUTES)}
        assert len(found) == PARTITIONS
