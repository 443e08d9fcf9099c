"""Offsets and groups that nobody needs any more."""

from __future__ import annotations

import pytest

from ottla.controller.topics import UnwantedTopic
from ottla.model.errors import ErrorCode
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from tests.support.decisions import delete_topics
from tests.support.groups import (
    DELAY_MS,
    GROUP,
    SESSION_MS,
    TOPIC,
    Broker,
    Member,
    commit,
    commit_request,
    fetch,
    stable_group,
)

MINUTE_MS = 60_000
RETENTION_MS = 60 * MINUTE_MS
CHECK_MS = MINUTE_MS


@pytest.fixture
def broker() -> Broker:
    return Broker(offsets_retention_minutes="60", offsets_retention_check_interval_ms=str(CHECK_MS))


def test_offsets_without_a_group_expire_one_by_one(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1, (TOPIC, 1): 1})
    broker.pass_ms(RETENTION_MS // 2)
    commit(client, {(TOPIC, 1): 2})
    broker.pass_ms(RETENTION_MS // 2 + CHECK_MS)
    assert fetch(client) == {(TOPIC, 1): 2}
    broker.pass_ms(RETENTION_MS // 2)
    assert fetch(client) == {}
    assert GROUP not in broker.shard().groups


def test_nothing_expires_before_its_time(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1})
    broker.pass_ms(RETENTION_MS - CHECK_MS)
    assert fetch(client) == {(TOPIC, 0): 1}


def test_offsets_of_a_group_stay_while_it_has_members(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    member.commit(7)
    for _ in range(3 * RETENTION_MS // (SESSION_MS - 1)):
        broker.pass_ms(SESSION_MS - 1)
        assert member.heartbeat() == ErrorCode.NONE
    assert fetch(member.client) == {(TOPIC, 0): 7}
    member.leave()
    broker.pass_ms(RETENTION_MS - CHECK_MS)
    assert fetch(member.client) == {(TOPIC, 0): 7}
    broker.pass_ms(2 * CHECK_MS)
    assert fetch(member.client) == {}
    assert GROUP not in broker.shard().groups
    broker.crash_and_restart()
    assert GROUP not in broker.shard().groups


def test_the_time_a_group_has_been_empty_survives_a_restart(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    member.commit(7)
    member.leave()
    broker.pass_ms(RETENTION_MS // 2)
    broker.crash_and_restart()
    broker.pass_ms(RETENTION_MS // 2 + CHECK_MS)
    assert fetch(broker.connect()) == {}


def test_a_commit_to_an_empty_group_is_kept_for_the_whole_time(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    member.leave()
    client = broker.connect()
    broker.pass_ms(CHECK_MS // 2)
    commit(client, {(TOPIC, 0): 1})
    broker.pass_ms(RETENTION_MS // 2)
    commit(client, {(TOPIC, 0): 2})
    broker.pass_ms(RETENTION_MS // 2 + CHECK_MS)
    assert fetch(client) == {(TOPIC, 0): 2}


def test_topics_a_group_no_longer_subscribes_to_expire(broker: Broker) -> None:
    broker.create_topic("old")
    client = broker.connect()
    commit(client, {("old", 0): 1, (TOPIC, 0): 1})
    member = Member(broker)
    stable_group(broker, member)
    for _ in range(RETENTION_MS // (SESSION_MS - 1) + 10):
        broker.pass_ms(SESSION_MS - 1)
        assert member.heartbeat() == ErrorCode.NONE
    assert fetch(client) == {(TOPIC, 0): 1}


def test_old_clients_say_how_long_an_offset_is_kept(broker: Broker) -> None:
    client = broker.connect()
    short = commit_request({(TOPIC, 0): 1}, retention_ms=2 * CHECK_MS)
    client.ask(short, OffsetCommitResponse, 4)
    broker.crash_and_restart()
    client = broker.connect()
    commit(client, {(TOPIC, 1): 1})
    assert fetch(client) == {(TOPIC, 0): 1, (TOPIC, 1): 1}
    broker.pass_ms(3 * CHECK_MS)
    assert fetch(client) == {(TOPIC, 1): 1}


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), 0, -2])
def test_absurd_retention_times(broker: Broker, retention_ms: int) -> None:
    client = broker.connect()
    request = commit_request({(TOPIC, 0): 1}, retention_ms=retention_ms)
    response = client.ask(request, OffsetCommitResponse, 4)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    broker.pass_ms(2 * CHECK_MS)
    assert fetch(client) == ({(TOPIC, 0): 1} if retention_ms > 0 else {})


def test_empty_groups_without_offsets_go_with_the_next_check(broker: Broker) -> None:
    member = Member(broker).join()
    broker.pass_ms(DELAY_MS)
    member.joined  # noqa: B018
    member.leave()
    assert broker.group().state_name == "Empty"
    broker.pass_ms(CHECK_MS + 100)
    assert GROUP not in broker.shard().groups


def test_a_group_that_was_only_looked_at_goes_as_well(broker: Broker) -> None:
    Member(broker).send_join()  # which makes the group, and leaves an id behind
    broker.pass_ms(SESSION_MS + CHECK_MS)
    assert GROUP not in broker.shard().groups


def test_offsets_of_a_deleted_topic_are_forgotten(broker: Broker) -> None:
    broker.create_topic("doomed", 2)
    client = broker.connect()
    commit(client, {("doomed", 0): 1, ("doomed", 1): 2, (TOPIC, 0): 3})
    commit(client, {("doomed", 0): 1}, group_id="other")
    delete_topic(broker, "doomed")
    broker.settle()
    assert fetch(client) == {(TOPIC, 0): 3}
    assert fetch(client, group_id="other") == {}
    broker.create_topic("doomed", 2)
    broker.crash_and_restart()
    assert fetch(broker.connect()) == {(TOPIC, 0): 3}


def test_a_topic_deleted_while_the_shard_loads_is_forgotten_after(broker: Broker) -> None:
    broker.create_topic("doomed")
    client = broker.connect()
    commit(client, {("doomed", 0): 1, (TOPIC, 0): 3})
    broker.clients.clear()
    broker.start_without_loading()
    delete_topic(broker, "doomed")
    broker.pass_ms(100)
    assert fetch(broker.connect()) == {(TOPIC, 0): 3}


def delete_topic(broker: Broker, name: str) -> None:
    node = broker.node
    decision = delete_topics(node.image, node.config, [UnwantedTopic(name)])
    assert decision.results[0].error is None
    node.controller.write(decision.records)
