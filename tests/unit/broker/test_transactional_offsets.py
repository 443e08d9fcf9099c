"""TxnOffsetCommit: the coordinator of the transaction is asked, and markers come in between."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.broker import Broker, Client
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


def prepared() -> tuple[Broker, ScriptedCoordinator, Client]:
    broker = Broker(offsets_topic_num_partitions="1", offsets_topic_replication_factor="1")
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
