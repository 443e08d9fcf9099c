"""Markers: sent in batches, again after errors, by whoever coordinates the transaction."""

from __future__ import annotations

import pytest

from ottla.coordinator.transactions.transaction_state import TransactionState
from ottla.metadata.records import RemoveTopicRecord
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from tests.support.request_cost import count_calls
from tests.support.transaction_coordinator import Coordination, SilentPeer

RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
]


def begun(coordination: Coordination, *partitions: tuple[str, int]) -> tuple[int, int]:
    producer = coordination.init().producer
    assert coordination.add(producer, *partitions).code is ErrorCode.NONE
    return producer


def test_the_markers_of_a_wake_up_go_out_together(coordination: Coordination) -> None:
    producers = {}
    for name in ("a", "b", "c"):
        producers[name] = coordination.init(transactional_id=name).producer
        coordination.add(producers[name], ("in", 0), ("out", 1), transactional_id=name)
    for name, producer in producers.items():
        coordination.end(producer, True, transactional_id=name, settled=False)
    coordination.settle()
    (request,) = coordination.leaders.requests
    assert {marker.producer_id for marker in request.markers} == {
        producer_id for producer_id, _ in producers.values()
    }
    assert all(marker.transaction_version == 2 for marker in request.markers)


def test_the_producer_hears_of_the_decision_before_markers_are_sent(
    coordination: Coordination,
) -> None:
    producer = begun(coordination, ("in", 0))
    told = coordination.end(producer, True, settled=False)
    coordination.node.settle_replies()
    assert told.code is ErrorCode.NONE
    assert coordination.leaders.requests == []
    coordination.settle()
    assert len(coordination.leaders.requests) == 1


def test_while_a_broker_has_not_answered_more_markers_are_collected(
    coordination: Coordination,
) -> None:
    coordination.leaders.is_slow = True
    for name in ("a", "b", "c"):
        producer = coordination.init(transactional_id=name).producer
        coordination.add(producer, ("in", 0), transactional_id=name)
        coordination.end(producer, True, transactional_id=name)
    assert [len(request.markers) for request in coordination.leaders.requests] == [1]
    coordination.leaders.answer()
    assert [len(request.markers) for request in coordination.leaders.requests] == [1, 2]


def test_a_request_has_a_limit_of_partitions(
    coordination: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.coordinator.transactions.marker_sender.MAX_PARTITIONS", 2)
    producer = begun(coordination, ("in", 0), ("in", 1), ("out", 0), ("out", 1), ("out", 2))
    coordination.end(producer, True)
    assert len(coordination.leaders.requests) == 3
    assert len(coordination.markers()) == 5
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("code", RETRIED)
def test_a_marker_is_sent_again_until_its_partition_has_it(
    coordination: Coordination, code: ErrorCode
) -> None:
    producer_id, epoch = producer = begun(coordination, ("in", 0), ("in", 1))
    coordination.leaders.codes[TopicPartition("in", 1)] = code
    coordination.end(producer, True)
    assert coordination.markers() == [("in", 0, producer_id, epoch + 1, True)]
    coordination.pass_ms(200)
    assert coordination.markers() == []
    assert coordination.transaction.state is TransactionState.PREPARE_COMMIT
    del coordination.leaders.codes[TopicPartition("in", 1)]
    coordination.pass_ms(60)
    assert coordination.markers() == [("in", 1, producer_id, epoch + 1, True)]
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
)
def test_a_partition_that_needs_no_marker_holds_nobody_up(
    coordination: Coordination, code: ErrorCode
) -> None:
    producer = begun(coordination, ("in", 0))
    coordination.leaders.codes[TopicPartition("in", 0)] = code
    coordination.end(producer, True)
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT


def test_a_deleted_topic_needs_no_marker(coordination: Coordination) -> None:
    producer = begun(coordination, ("in", 0), ("out", 0))
    coordination.leaders.codes[TopicPartition("in", 0)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    coordination.end(producer, True)
    topic_id = coordination.node.image.topics["in"].topic_id
    coordination.node.controller.write([RemoveTopicRecord(topic_id=topic_id)])
    coordination.pass_ms(60)
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT


def test_a_partition_without_a_leader_is_waited_for(coordination: Coordination) -> None:
    producer = begun(coordination, ("in", 0))
    coordination.lead("in", 0, -1)
    coordination.end(producer, True)
    coordination.pass_ms(500)
    assert coordination.leaders.requests == []
    coordination.lead("in", 0, coordination.node.node_id)
    coordination.settle()
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT


def test_a_leader_that_cannot_be_reached_is_asked_again(coordination: Coordination) -> None:
    producer = begun(coordination, ("in", 0), ("in", 1))
    coordination.lead("in", 1, coordination.node.node_id + 1)
    coordination.end(producer, True)
    coordination.pass_ms(200)
    assert [marker[:2] for marker in coordination.markers()] == [("in", 0)]
    coordination.lead("in", 1, coordination.node.node_id)
    coordination.pass_ms(60)
    assert [marker[:2] for marker in coordination.markers()] == [("in", 1)]
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT


def test_markers_follow_a_leader_that_moves_before_it_answers(coordination: Coordination) -> None:
    producer = begun(coordination, ("in", 0))
    coordination.leaders.is_slow = True
    coordination.end(producer, True)
    coordination.lead("in", 0, -1)
    coordination.leaders.is_slow = False
    coordination.leaders.waiting.clear()  # the old leader never answers
    coordination.coordinator.markers._in_flight.clear()
    coordination.lead("in", 0, coordination.node.node_id)
    coordination.settle()
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT


def test_markers_that_wait_for_a_paused_leader_follow_when_it_is_fenced(
    coordination: Coordination,
) -> None:
    own, paused = coordination.node.node_id, coordination.node.node_id + 1
    coordination.register(paused, fenced=False)
    silent = coordination.leaders.silent = SilentPeer()
    coordination.lead("in", 0, paused)
    coordination.lead("in", 1, paused)
    for name, index in (("sent", 0), ("waits", 1)):
        producer = coordination.init(transactional_id=name).producer
        coordination.add(producer, ("in", index), transactional_id=name)
        coordination.end(producer, True, transactional_id=name)
    assert silent.sent == 1
    coordination.lead("in", 0, own)
    coordination.settle()
    assert [marker[:2] for marker in coordination.markers()] == [("in", 0)]
    coordination.register(paused, fenced=True)
    coordination.lead("in", 1, own)
    coordination.settle()
    assert [marker[:2] for marker in coordination.markers()] == [("in", 1)]
    assert silent.sent == 1


@pytest.mark.parametrize("committed", [True, False])
def test_a_new_coordinator_goes_on_with_the_markers(
    coordination: Coordination, committed: bool
) -> None:
    producer_id, epoch = producer = begun(coordination, ("in", 0), ("out", 1))
    coordination.leaders.is_slow = True
    coordination.end(producer, committed)
    coordination.leaders = type(coordination.leaders)()
    coordination.restart()
    assert coordination.markers() == [
        ("in", 0, producer_id, epoch + 1, committed),
        ("out", 1, producer_id, epoch + 1, committed),
    ]
    state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    assert coordination.transaction.state is state
    assert coordination.end(producer, committed).producer == (producer_id, epoch + 1)


def test_a_coordinator_in_a_new_epoch_says_so(coordination: Coordination) -> None:
    producer = begun(coordination, ("in", 0))
    coordination.end(producer, True)
    coordination.elect(coordination.node.node_id + 1)
    coordination.elect(coordination.node.node_id)
    coordination.pass_ms(20)
    following = coordination.init().producer
    coordination.add(following, ("in", 0))
    coordination.end(following, True)
    first, second = coordination.leaders.coordinator_epochs
    assert second > first
    assert second == coordination.runtime.leader_epoch


def test_a_coordinator_that_was_replaced_completes_nothing(coordination: Coordination) -> None:
    producer = begun(coordination, ("in", 0))
    coordination.leaders.is_slow = True
    coordination.end(producer, True)
    runtime = coordination.runtime
    log = runtime.partition.online_log()
    coordination.elect(coordination.node.node_id + 1)
    end = log.log_end_offset
    coordination.leaders.answer()
    coordination.settle()
    assert log.log_end_offset == end


def test_an_ongoing_transaction_survives_a_restart(coordination: Coordination) -> None:
    producer_id, epoch = producer = begun(coordination, ("in", 0))
    coordination.restart()
    assert coordination.transaction.state is TransactionState.ONGOING
    assert coordination.add(producer, ("in", 1)).code is ErrorCode.NONE
    assert coordination.end(producer, True).producer == (producer_id, epoch + 1)
    assert len(coordination.markers()) == 2


def most_calls(coordination: Coordination, wake_ups: int) -> int:
    """Let the node work; return the calls of the longest wake-up."""
    node, most = coordination.node, 0

    def wake_up() -> None:
        node.advance()
        node.settle()

    for _ in range(wake_ups):
        coordination.clock.now_ms += 1
        most = max(most, count_calls(wake_up))
    return most


MOST_CALLS = 30_000
"""About sixty for each marker of a request."""


def test_thousands_of_transactions_that_end_at_once_do_not_hold_the_loop() -> None:
    coordination = Coordination()
    coordination.node.sliced_work.slice_ms = 0
    coordination.leaders.is_slow = True
    names = [f"id-{number}" for number in range(1500)]
    for name in names:
        producer = coordination.init(transactional_id=name).producer
        coordination.add(producer, ("in", 0), transactional_id=name)
        coordination.end(producer, True, transactional_id=name)
    most = 0
    while coordination.leaders.waiting:
        most = max(most, count_calls(coordination.leaders.answer), most_calls(coordination, 50))
    assert len(coordination.leaders.written) == len(names)
    shards = [each.shard for each in coordination.coordinator.host.runtimes.values()]
    states = [found.state for shard in shards for found in shard.transactions.values()]
    assert states == [TransactionState.COMPLETE_COMMIT] * len(names)
    assert most < MOST_CALLS


def test_markers_that_thousands_of_partitions_refuse_do_not_hold_the_loop() -> None:
    coordination = Coordination()
    coordination.node.sliced_work.slice_ms = 0
    coordination.create("many", 3000)
    coordination.settle()
    producer = coordination.init().producer
    coordination.add(producer, *(("many", index) for index in range(3000)))
    partitions = [TopicPartition("many", index) for index in range(3000)]
    refused = dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    coordination.leaders.codes.update(refused)
    coordination.end(producer, True)
    assert most_calls(coordination, 500) < MOST_CALLS
    assert coordination.transaction.state is TransactionState.PREPARE_COMMIT
    coordination.leaders.codes.clear()
    assert most_calls(coordination, 500) < MOST_CALLS
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT
    written = [(topic, index) for topic, index, *_ in coordination.leaders.written]
    assert sorted(written) == sorted(partitions)
