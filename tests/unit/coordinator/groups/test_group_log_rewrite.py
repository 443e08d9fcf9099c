"""Bounding the size of a shard's log: the state survives, the log does not grow for ever."""

from __future__ import annotations

import pytest

from ottla.coordinator.runtime import log_rewrite
from ottla.coordinator.runtime.log_rewrite import LogCompaction, is_overgrown
from ottla.model.errors import ErrorCode
from tests.support.groups import (
    GROUP,
    PARTITIONS,
    TOPIC,
    Broker,
    Member,
    commit,
    fetch,
    stable_group,
    sync_all,
)


def rewrite(broker: Broker) -> None:
    work = LogCompaction(broker.node.groups.runtimes[0])
    for _ in range(100):
        if work.step():
            return
        broker.settle()
    raise AssertionError("it does not end")


def test_the_log_begins_anew_with_all_that_lives(broker: Broker) -> None:
    client = broker.connect()
    member = Member(broker, group_id="members")
    stable_group(broker, member)
    for offset in range(300):
        commit(client, {(TOPIC, offset % PARTITIONS): offset})
    end = broker.log.log_end_offset
    rewrite(broker)
    log = broker.log
    assert log.log_start_offset == end
    assert log.log_end_offset - end == PARTITIONS + 1
    assert len(log.segments) == 1
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
    rewrite(broker)
    broker.crash_and_restart()
    assert list(broker.shard().groups) == [GROUP]


def test_commits_go_on_meanwhile_and_win(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, i): 1 for i in range(PARTITIONS)})
    work = LogCompaction(broker.node.groups.runtimes[0])
    monkeypatch.setattr(log_rewrite, "_RECORDS_PER_STEP", 2)
    offset = 1
    while not work.step():
        offset += 1
        commit(client, {(TOPIC, 0): offset, (TOPIC, PARTITIONS - 1): offset})
        commit(client, {(TOPIC, offset % 3 + 2): offset}, group_id=f"new-{offset}")
    monkeypatch.undo()
    assert offset > 4
    before = fetch(client)
    assert before[TOPIC, 0] == before[TOPIC, PARTITIONS - 1] == offset
    broker.crash_and_restart()
    client = broker.connect()
    assert fetch(client) == before
    for number in range(2, offset + 1):
        assert fetch(client, group_id=f"new-{number}") == {(TOPIC, number % 3 + 2): number}


def test_a_crash_in_the_middle_changes_nothing(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, i): i for i in range(PARTITIONS)})
    work = LogCompaction(broker.node.groups.runtimes[0])
    assert not work.step()
    broker.settle()
    broker.crash_and_restart()
    assert fetch(broker.connect()) == {(TOPIC, i): i for i in range(PARTITIONS)}


def test_a_rebalance_that_goes_on_is_not_written_down(broker: Broker) -> None:
    first, second = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, first)
    second.join()
    first.join()
    assert first.joined.generation_id == 2
    rewrite(broker)
    assert broker.group().state_name == "CompletingRebalance"
    sync_all([first, second])
    assert first.heartbeat() == ErrorCode.NONE
    third = Member(broker, "c").join()
    rewrite(broker)
    assert third.is_parked
    broker.crash_and_restart()
    assert broker.group().generation_id == 2
    assert {m.assignment for m in broker.group().members.values()} == {b"a", b"b"}


def test_it_begins_by_itself_when_the_log_is_overgrown(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rewrite.is_overgrown, "__defaults__", (10_000,))
    client = broker.connect()
    for offset in range(50):
        commit(client, {(TOPIC, 0): offset})
    assert broker.log.log_start_offset == 0
    for offset in range(400):
        commit(client, {(TOPIC, 0): offset})
    broker.pass_ms(6000)
    assert broker.log.log_start_offset > 400
    assert broker.log.size < 1000
    assert fetch(client) == {(TOPIC, 0): 399}
    assert not is_overgrown(broker.node.groups.runtimes[0])


def test_a_log_whose_state_is_that_large_is_left_alone(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, i): i for i in range(PARTITIONS)})
    runtime = broker.node.groups.runtimes[0]
    assert not is_overgrown(runtime, small_bytes=0)
    for offset in range(PARTITIONS * 4):
        commit(client, {(TOPIC, 0): offset})
    assert is_overgrown(runtime, small_bytes=0)


def test_a_full_disk_puts_it_off(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1})
    work = LogCompaction(broker.node.groups.runtimes[0])
    assert not work.step()
    broker.files.fill("*.log")
    broker.settle()
    assert work.step()
    broker.files.heal()
    broker.pass_ms(1100)
    assert fetch(client) == {(TOPIC, 0): 1}
    assert broker.log.log_start_offset == 0
