"""Bounding the size of a shard's log: the state survives, the log does not grow for ever."""

from __future__ import annotations

import pytest

from ottla.coordinator.runtime import log_growth
from ottla.coordinator.runtime.log_growth import dirty_bytes
from tests.support.groups import (
    GROUP,
    PARTITIONS,
    TOPIC,
    Broker,
    Member,
    clean_groups,
    commit,
    fetch,
    stable_group,
)


def test_a_clean_keeps_all_that_lives(broker: Broker) -> None:
    client = broker.connect()
    member = Member(broker, group_id="members")
    stable_group(broker, member)
    for offset in range(300):
        commit(client, {(TOPIC, offset % PARTITIONS): offset})
    before = broker.log.size
    clean_groups(broker)
    assert broker.log.size < before / 10
    assert broker.log.cleaned_upto == broker.log.log_end_offset
    expected = {(TOPIC, i): max(range(i, 300, PARTITIONS)) for i in range(PARTITIONS)}
    assert fetch(client) == expected
    broker.crash_and_restart()
    assert fetch(broker.connect()) == expected
    assert broker.stored("members").generation == 1
    assert list(broker.group("members").members) == [member.member_id]


def test_deleted_offsets_and_groups_stay_deleted(broker: Broker) -> None:
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

    client = broker.connect()
    commit(client, {(TOPIC, 0): 1}, group_id="doomed")
    commit(client, {(TOPIC, 0): 2})
    client.ask(DeleteGroupsRequest(groups_names=["doomed"]), DeleteGroupsResponse)
    for _ in range(3):
        clean_groups(broker)
        broker.pass_ms(100_000_000)  # tombstones are gone in the end
        commit(client, {(TOPIC, 1): 2})
    broker.crash_and_restart()
    assert list(broker.shard().groups) == [GROUP]


def test_a_log_is_cleaned_early_when_it_is_large(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_growth, "SMALL_BYTES", 10_000)
    client = broker.connect()
    for offset in range(50):
        commit(client, {(TOPIC, 0): offset})
    broker.pass_ms(6000)
    assert broker.log.cleaned_upto == 0
    for offset in range(400):
        commit(client, {(TOPIC, 0): offset})
    broker.pass_ms(6000)
    assert broker.log.cleaned_upto > 400
    assert broker.log.size < 1000
    assert fetch(client) == {(TOPIC, 0): 399}


def test_all_partitions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_growth, "TOTAL_BYTES", 60_000)
    monkeypatch.setattr(log_growth, "TINY_BYTES", 1_000)
    broker = Broker(offsets_topic_num_partitions="10")
    client = broker.connect()
    logs = [runtime.partition.online_log() for runtime in broker.node.groups.runtimes.values()]
    largest = 0
    for offset in range(60):
        for group in range(30):
            commit(client, {(TOPIC, 0): offset}, group_id=f"group-{group}")
        broker.pass_ms(1000)
        largest = max(largest, sum(log.size for log in logs))
    assert sum(log.log_end_offset for log in logs) == 1800
    # Five seconds of commits may come on top of what is allowed.
    assert largest < 60_000 + 5 * 30 * 150
    assert sum(map(dirty_bytes, logs)) < largest
    broker.crash_and_restart()
    client = broker.connect()
    for group in range(30):
        assert fetch(client, group_id=f"group-{group}") == {(TOPIC, 0): 59}


def test_few_commits_in_many_partitions_are_left_alone() -> None:
    broker = Broker(offsets_topic_num_partitions="10")
    client = broker.connect()
    for offset in range(100):
        for group in range(10):
            commit(client, {(TOPIC, 0): offset}, group_id=f"group-{group}")
    broker.pass_ms(60_000)
    assert broker.node.hosted_logs.cleaning.cleaner is None or not (
        broker.node.hosted_logs.cleaning.cleaner.cleans
    )
