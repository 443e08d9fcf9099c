"""Requests with very many partitions or groups: handled once each, and in slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker import api
from ottla.broker.large_requests import offset_commit_parts
from ottla.coordinator.groups import group_listing, offset_delete, offset_expiration
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.model.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.support.consumer_groups import Broker as ConsumerBroker
from tests.support.consumer_groups import delete_topic
from tests.support.groups import (
    GROUP,
    TOPIC,
    Broker,
    Client,
    Member,
    Pending,
    commit,
    commit_request,
    fetch,
    stable_group,
)

WIDE = "wide"
WIDTH = 700


@pytest.fixture(autouse=True)
def many_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LARGE_BYTES", 2000)


@pytest.fixture
def broker() -> ConsumerBroker:
    broker = ConsumerBroker()
    broker.create_topic(WIDE, WIDTH)
    return broker


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many records each command writes."""
    counts: list[int] = []
    finish = ShardRuntime.finish

    def counting(runtime: ShardRuntime, records: list[object]) -> None:  # type: ignore[type-arg]
        counts.append(len(records))
        finish(runtime, records)  # type: ignore[arg-type]

    monkeypatch.setattr(ShardRuntime, "finish", counting)
    return counts


def step_by_step(broker: Broker) -> None:
    """Let each step of sliced work have a wake-up of its own."""
    broker.node.sliced_work.slice_ms = 0
    broker.pass_ms(1)


def slowly(broker: Broker, send: Callable[[], Pending]) -> tuple[Pending, int]:
    """Send a request, with a wake-up for each step. Return how many wake-ups it took."""
    step_by_step(broker)
    pending = send()
    wake_ups = 1
    while pending.response is None:
        broker.pass_ms(1)
        wake_ups += 1
        assert wake_ups < 5000
    broker.node.sliced_work.slice_ms = 2
    return pending, wake_ups


def send_commit(client: Client, version: int, *, start: int = 0) -> Callable[[], Pending]:
    offsets = {(WIDE, index): start + index for index in range(WIDTH)}
    request = commit_request(offsets)
    topic_id = client.broker.node.image.topics[WIDE].topic_id
    request.topics[0].topic_id = topic_id
    return lambda: client.send(request, version)


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
def test_a_large_commit_is_done_in_slices(broker: Broker, written: list[int], version: int) -> None:
    client = broker.connect()
    pending, wake_ups = slowly(broker, send_commit(client, version))
    (topic,) = pending.of(OffsetCommitResponse).topics
    assert [part.partition_index for part in topic.partitions] == list(range(WIDTH))
    assert {part.error_code for part in topic.partitions} == {ErrorCode.NONE}
    assert sum(written) == WIDTH
    assert max(written) == offset_commit_parts.PARTITIONS_A_PART
    assert wake_ups > WIDTH // offset_commit_parts.PARTITIONS_A_PART
    broker.crash_and_restart()
    assert fetch(broker.connect()) == {(WIDE, index): index for index in range(WIDTH)}


def test_a_partition_that_is_named_often_is_committed_once(
    broker: Broker, written: list[int]
) -> None:
    client = broker.connect()
    request = commit_request({(WIDE, index): index for index in range(500)})
    again = commit_request({(WIDE, index): index + 7 for index in range(500)})
    request.topics += again.topics
    (topic,) = client.ask(request, OffsetCommitResponse, 9).topics
    assert len(topic.partitions) == 500
    assert sum(written) == 500
    assert fetch(client) == {(WIDE, index): index + 7 for index in range(500)}


def test_partitions_that_do_not_exist_and_more_than_a_batch(
    broker: Broker, written: list[int]
) -> None:
    client = broker.connect()
    many = commit_request({("gone", index): 1 for index in range(2000)} | {(WIDE, 0): 5})
    unknown, known = client.ask(many, OffsetCommitResponse, 9).topics
    codes = {part.error_code for part in unknown.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert known.partitions[0].error_code == ErrorCode.NONE
    written.clear()
    request = commit_request({(WIDE, index): 1 for index in range(30_000)})
    pending, wake_ups = slowly(broker, lambda: client.send(request, 9))
    (topic,) = pending.of(OffsetCommitResponse).topics
    assert [part.error_code for part in topic.partitions].count(ErrorCode.NONE) == WIDTH
    assert (sum(written), wake_ups > 300) == (WIDTH, True)
    written.clear()
    request = commit_request({(WIDE, index): 1 for index in range(WIDTH)}, metadata="x" * 4000)
    pending, _ = slowly(broker, lambda: client.send(request, 9))
    (topic,) = pending.of(OffsetCommitResponse).topics
    assert {part.error_code for part in topic.partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert written == []


def test_requests_behind_a_large_commit_wait_for_it(broker: Broker) -> None:
    client = broker.connect()
    step_by_step(broker)
    send_commit(client, 9)()
    assert client.connection.parked is not None
    broker.pass_ms(1000)
    assert client.connection.parked is None


def test_a_large_commit_without_a_coordinator_and_of_a_stranger(broker: Broker) -> None:
    client = broker.connect()
    stable_group(broker, Member(broker))
    (topic,) = client.ask(
        commit_request({(WIDE, index): 1 for index in range(WIDTH)}), OffsetCommitResponse, 9
    ).topics
    assert {part.error_code for part in topic.partitions} == {ErrorCode.UNKNOWN_MEMBER_ID}
    broker.node.groups.host._unload(0)
    (topic,) = client.ask(
        commit_request({(WIDE, index): 1 for index in range(WIDTH)}), OffsetCommitResponse, 9
    ).topics
    assert {part.error_code for part in topic.partitions} == {ErrorCode.NOT_COORDINATOR}


def test_a_coordinator_that_goes_in_the_middle_of_a_large_commit(broker: Broker) -> None:
    client = broker.connect()
    step_by_step(broker)
    pending = send_commit(client, 9)()
    while not broker.log.log_end_offset:
        broker.pass_ms(1)
    broker.node.groups.host._unload(0)
    broker.pass_ms(1000)
    (topic,) = pending.of(OffsetCommitResponse).topics
    codes = [part.error_code for part in topic.partitions]
    assert codes[0] == ErrorCode.NONE
    assert codes[-1] == ErrorCode.NOT_COORDINATOR


def delete_request(*indexes: int) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    topic = OffsetDeleteRequestTopic(name=WIDE, partitions=partitions)
    return OffsetDeleteRequest(group_id=GROUP, topics=[topic])


@pytest.mark.interpreted
def test_many_offsets_are_deleted_in_slices_and_once(broker: Broker, written: list[int]) -> None:
    client = broker.connect()
    send_commit(client, 9)()
    written.clear()
    request = delete_request(*range(WIDTH), *range(100))
    pending, wake_ups = slowly(broker, lambda: client.send(request))
    (topic,) = pending.of(OffsetDeleteResponse).topics
    assert [part.partition_index for part in topic.partitions] == list(range(WIDTH))
    assert {part.error_code for part in topic.partitions} == {ErrorCode.NONE}
    assert (sum(written), max(written)) == (WIDTH, offset_delete.PARTITIONS_A_STEP)
    assert wake_ups > 7
    assert broker.shard().offsets.count == 0


def test_a_group_that_goes_with_its_last_offset_is_no_error(broker: Broker) -> None:
    client = broker.connect()
    commit(client, {(WIDE, 0): 1})
    (topic,) = client.ask(delete_request(*range(WIDTH)), OffsetDeleteResponse).topics
    assert {part.error_code for part in topic.partitions} == {ErrorCode.NONE}


@pytest.mark.interpreted
def test_a_group_with_many_offsets_is_deleted_in_slices(broker: Broker, written: list[int]) -> None:
    client = broker.connect()
    send_commit(client, 9)()
    written.clear()
    request = DeleteGroupsRequest(groups_names=[GROUP, GROUP, "none"])
    pending, wake_ups = slowly(broker, lambda: client.send(request))
    response = pending.of(DeleteGroupsResponse)
    assert [(result.group_id, result.error_code) for result in response.results] == [
        (GROUP, ErrorCode.NONE),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert (sum(written), max(written)) == (WIDTH, group_listing._OFFSETS_A_STEP)
    assert wake_ups > 2
    assert broker.shard().groups == {}


def test_many_groups_are_listed_in_slices(broker: Broker) -> None:
    client = broker.connect()
    for number in range(300):
        commit(client, {(TOPIC, 0): 1}, group_id=f"group-{number}")
    pending, wake_ups = slowly(broker, lambda: client.send(ListGroupsRequest()))
    assert len(pending.of(ListGroupsResponse).groups) == 300
    assert wake_ups > 300 // group_listing._GROUPS_A_STEP


@pytest.mark.interpreted
def test_offsets_of_a_deleted_topic_and_expired_ones_go_in_slices(
    broker: ConsumerBroker, written: list[int]
) -> None:
    client = broker.connect()
    send_commit(client, 9)()
    commit(client, {(TOPIC, 0): 1})
    written.clear()
    step_by_step(broker)
    delete_topic(broker, WIDE)
    broker.create_topic(WIDE, 2)  # again: its offsets stay
    late = broker.connect()
    commit(late, {(WIDE, 1): 9})
    broker.pass_ms(100)
    assert max(written) == offset_expiration._OFFSETS_A_STEP
    broker.node.sliced_work.slice_ms = 2
    assert fetch(client) == {(TOPIC, 0): 1, (WIDE, 1): 9}


@pytest.mark.interpreted
def test_many_expired_offsets_go_in_slices(written: list[int]) -> None:
    broker = Broker(offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
    broker.create_topic(WIDE, WIDTH)
    client = broker.connect()
    send_commit(client, 9)()
    written.clear()
    broker.pass_ms(62_000)
    assert broker.shard().groups == {}
    assert (sum(written), max(written)) == (WIDTH, offset_expiration._OFFSETS_A_STEP)
