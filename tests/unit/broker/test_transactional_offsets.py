"""TxnOffsetCommit: the coordinator of the transaction is asked, and markers come in between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.broker import Broker, Client
from tests.support.request_cost import count_calls
from tests.support.transactional_broker import ScriptedCoordinator, markers, with_coordinator

PRODUCER = 7
OFFSETS = {"__consumer_offsets": [0]}


def commit(epoch: int) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    return TxnOffsetCommitRequest(
        transactional_id="id",
        group_id="g",
        producer_id=PRODUCER,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def code_of(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


def prepared(verifies: str = "true") -> tuple[Broker, ScriptedCoordinator, Client]:
    broker = Broker(
        offsets_topic_num_partitions="1",
        offsets_topic_replication_factor="1",
        transaction_partition_verification_enable=verifies,
    )
    broker.topic()
    coordinator, client = with_coordinator(broker), broker.connect()
    client.ask(FindCoordinatorRequest(key="g"), 3)
    for _ in range(20):
        broker.pass_time(100)
    return broker, coordinator, client


@pytest.mark.parametrize("version", [4, 5])
def test_a_producer_that_is_fenced_while_the_coordinator_is_asked_is_refused(version: int) -> None:
    broker, coordinator, client = prepared()
    coordinator.waits = True
    client.send(commit(epoch=1), version)
    broker.node.settle()
    assert len(coordinator.asked) == 1
    fence = markers(PRODUCER, commit=False, producer_epoch=2, partitions=OFFSETS)
    broker.connect().ask(fence, 1)
    coordinator.answer()
    broker.node.settle()
    ((_, response),) = client.replies()
    assert code_of(response) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_coordinator_is_asked_again_after_a_marker_of_the_transaction_before() -> None:
    broker, coordinator, client = prepared()
    coordinator.waits = True
    client.send(commit(epoch=1), 4)
    broker.node.settle()
    broker.connect().ask(markers(PRODUCER, producer_epoch=1, partitions=OFFSETS), 1)
    coordinator.answer()
    assert len(coordinator.asked) == 2
    coordinator.answer()
    broker.node.settle()
    ((_, response),) = client.replies()
    assert code_of(response) == ErrorCode.NONE


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (PRODUCER, -1)])
def test_offsets_of_no_producer_are_refused(producer_id: int, epoch: int) -> None:
    _, _, client = prepared(verifies="false")
    request = commit(epoch)
    request.producer_id = producer_id
    assert code_of(client.ask(request, 4)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code_of(client.ask(commit(1), 4)) == ErrorCode.NONE


def test_a_transaction_has_a_limit_of_offsets_that_its_marker_applies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.coordinator.groups.txn_offset_commit.MAX_PENDING", 2)
    _, _, client = prepared()
    found = []
    for group_id in ("g", "h", "g", "i", "h"):
        request = commit(epoch=1)
        request.group_id = group_id
        found.append(code_of(client.ask(request, 4)))
    none, refused = ErrorCode.NONE, ErrorCode.POLICY_VIOLATION
    assert found == [none, none, none, refused, none]
    client.ask(markers(PRODUCER, producer_epoch=1, partitions=OFFSETS), 1)
    request = commit(epoch=1)
    request.group_id = "i"
    assert code_of(client.ask(request, 4)) == none


# -- many offsets ----------------------------------------------------------------------------


MANY = 1000
MOST_CALLS = 8000
"""In a wake-up, with many offsets: a step has a hundred, each of which needs a few dozen calls."""


def commit_of_many(known: int = MANY) -> TxnOffsetCommitRequest:
    request = commit(epoch=1)
    request.topics[0] = TxnOffsetCommitRequestTopic(
        name="many",
        partitions=[
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=index)
            for index in range(MANY - known, 2 * MANY - known)
        ],
    )
    return request


def prepared_for_many() -> tuple[Broker, Client]:
    broker, _, client = prepared()
    client.ask(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="many", num_partitions=MANY, replication_factor=1)]
        ),
        7,
    )
    broker.node.sliced_work.slice_ms = 0  # each step has a wake-up of its own
    return broker, client


def committed(
    broker: Broker, partitions: Iterable[int] = range(MANY), topic_name: str = "many"
) -> dict[int, int]:
    """Return the stable offsets of the group by partition; -1 stands for none."""
    topic = OffsetFetchRequestTopics(name=topic_name, partition_indexes=list(partitions))
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    response, _ = ask_in_wake_ups(broker, broker.connect(), request, 8)
    (found,) = response.groups[0].topics
    return {
        each.partition_index: each.committed_offset
        for each in found.partitions
        if each.error_code == ErrorCode.NONE
    }


def ask_in_wake_ups(broker: Broker, client: Client, request: Any, version: int) -> tuple[Any, int]:
    """Return the answer, and the calls of the wake-up that had most."""

    def send() -> None:
        client.send(request, version)
        broker.node.settle()

    most_calls = count_calls(send)
    while not (replies := list(client.replies())):
        most_calls = max(most_calls, count_calls(lambda: broker.pass_time(1)))
    ((_, response),) = replies
    return response, most_calls


def test_many_offsets_are_committed_and_applied_in_steps() -> None:
    broker, client = prepared_for_many()
    ask_in_wake_ups(broker, client, commit_of_many(), 5)  # imports and compiles what it needs
    response, commit_calls = ask_in_wake_ups(broker, client, commit_of_many(), 5)
    assert {each.error_code for each in response.topics[0].partitions} == {ErrorCode.NONE}
    assert [each.partition_index for each in response.topics[0].partitions] == list(range(MANY))
    assert committed(broker) == {}
    marker = markers(PRODUCER, producer_epoch=1, partitions=OFFSETS)
    _, marker_calls = ask_in_wake_ups(broker, client, marker, 1)
    assert committed(broker) == {index: index for index in range(MANY)}
    assert max(commit_calls, marker_calls) < MOST_CALLS


def test_unknown_partitions_among_many_have_their_own_result() -> None:
    broker, client = prepared_for_many()
    known = MANY - 150  # the first part has unknown ones only if they come first
    request = commit_of_many(known)
    request.topics[0].partitions.reverse()
    response, _ = ask_in_wake_ups(broker, client, request, 4)
    codes = {each.partition_index: each.error_code for each in response.topics[0].partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {
        index: ErrorCode.NONE if index < MANY else unknown for index in range(150, MANY + 150)
    }
    ask_in_wake_ups(broker, client, markers(PRODUCER, producer_epoch=1, partitions=OFFSETS), 1)
    found = committed(broker)
    assert sum(offset >= 0 for offset in found.values()) == known


def test_a_commit_while_a_marker_is_applied_is_not_undone() -> None:
    broker, client = prepared_for_many()
    ask_in_wake_ups(broker, client, commit_of_many(), 5)
    other = broker.connect()
    client.send(markers(PRODUCER, producer_epoch=1, partitions=OFFSETS), 1)
    broker.node.settle()
    last = OffsetCommitRequestPartition(partition_index=MANY - 1, committed_offset=77)
    topic = OffsetCommitRequestTopic(name="many", partitions=[last])
    plain = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    assert other.ask(plain, 8).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed(broker, [MANY - 2]) == {}, "the marker is still being applied"
    while not list(client.replies()):
        broker.pass_time(1)
    assert committed(broker) == {**{index: index for index in range(MANY)}, MANY - 1: 77}


def test_a_restart_applies_a_large_marker_in_steps() -> None:
    broker, client = prepared_for_many()
    ask_in_wake_ups(broker, client, commit_of_many(), 5)
    ask_in_wake_ups(broker, client, markers(PRODUCER, producer_epoch=1, partitions=OFFSETS), 1)
    broker, _ = restarted(broker)  # compiles what it needs
    broker, most_calls = restarted(broker)
    assert committed(broker) == {index: index for index in range(MANY)}
    assert most_calls < 2 * MOST_CALLS


def restarted(broker: Broker) -> tuple[Broker, int]:
    """Return a broker that has loaded the same files, and the calls of its longest wake-up."""
    broker.node.shutdown()

    class Restarted(Broker):
        earlier_files = broker.node.ports.files

    started = Restarted(offsets_topic_num_partitions="1")
    return started, max(count_calls(lambda: started.pass_time(1)) for _ in range(100))


@pytest.mark.parametrize("is_of_new_topic", [True, False])
def test_the_end_of_a_topic_ends_the_commits_for_it_but_not_for_its_successor(
    is_of_new_topic: bool,
) -> None:
    """The coordinator takes some time for the offsets of a deleted topic."""
    broker, _, client = prepared()
    assert code_of(client.ask(commit(epoch=1), 4)) == ErrorCode.NONE
    topic_id = broker.node.image.topics["t"].topic_id
    broker.node.groups.topics_deleted({"t": b"\1" * 16 if is_of_new_topic else topic_id})
    broker.pass_time(100)
    client.ask(markers(PRODUCER, producer_epoch=1, partitions=OFFSETS), 1)
    assert committed(broker, [0], "t") == {0: 5 if is_of_new_topic else -1}
