"""Transactions from the first partition to the last marker."""

from __future__ import annotations

from errno import ENOSPC

import pytest

from ottla.coordinator.transactions.transaction import LAST_EPOCH
from ottla.coordinator.transactions.transaction_state import TransactionState
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from tests.support.transaction_coordinator import Coordination, partitions_of


@pytest.mark.parametrize("committed", [True, False])
def test_version_2_has_an_epoch_for_each_transaction(committed: bool) -> None:
    coordination = Coordination()
    producer_id, epoch = producer = coordination.init().producer
    coordination.add(producer, ("in", 0), ("out", 2))
    assert list(partitions_of(coordination.transaction)) == [("in", 0), ("out", 2)]
    assert coordination.end(producer, committed).producer == (producer_id, epoch + 1)
    assert coordination.markers() == [
        ("in", 0, producer_id, epoch + 1, committed),
        ("out", 2, producer_id, epoch + 1, committed),
    ]
    state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    assert coordination.transaction.state is state
    assert coordination.end(producer, committed).producer == (producer_id, epoch + 1)  # again
    assert coordination.end(producer, not committed).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.markers() == []
    assert coordination.add(producer, ("in", 1)).code is ErrorCode.PRODUCER_FENCED
    assert coordination.add((producer_id, epoch + 1), ("in", 1)).code is ErrorCode.NONE


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_older_clients_keep_their_epoch(level: int, committed: bool) -> None:
    coordination = Coordination(level)
    producer = coordination.init().producer
    for number in range(2):
        coordination.add(producer, ("in", number), version=0)
        assert coordination.end(producer, committed, version=0).code is ErrorCode.NONE
        assert coordination.markers() == [("in", number, *producer, committed)]
        assert coordination.end(producer, committed, version=0).code is ErrorCode.NONE
        other = coordination.end(producer, not committed, version=0)
        assert other.code is ErrorCode.INVALID_TXN_STATE
    assert coordination.markers() == []


def test_markers_wait_for_the_committed_decision(coordination: Coordination) -> None:
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    told = coordination.end(producer, True, settled=False)
    assert coordination.leaders.requests == []
    assert not told.is_told
    coordination.settle()
    assert told.is_told
    assert len(coordination.markers()) == 1


def test_a_decision_that_is_not_written_sends_no_markers(coordination: Coordination) -> None:
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    told = coordination.end(producer, True, settled=False)
    coordination.files.fail("write", OSError(ENOSPC, "full"), path="*__transaction*", times=1)
    coordination.settle()
    assert told.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordination.leaders.requests == []
    coordination.pass_ms(1100, 10)
    assert coordination.transaction.state is TransactionState.ONGOING
    assert coordination.end(producer, False).code is ErrorCode.NONE
    assert coordination.markers() == [("in", 0, producer[0], 1, False)]


def test_the_answer_comes_before_the_markers(coordination: Coordination) -> None:
    producer_id, epoch = producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    coordination.leaders.is_slow = True
    assert coordination.end(producer, True).producer == (producer_id, epoch + 1)
    assert coordination.transaction.state is TransactionState.PREPARE_COMMIT
    following = (producer_id, epoch + 1)
    assert coordination.add(following, ("in", 0)).code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordination.verify(following, ("in", 0)).code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordination.end(producer, True).code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordination.end(producer, False).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.end(following, True).code is ErrorCode.PRODUCER_FENCED
    coordination.leaders.answer()
    coordination.settle()
    assert coordination.transaction.state is TransactionState.COMPLETE_COMMIT


def test_the_next_transaction_may_wait_for_the_markers(coordination: Coordination) -> None:
    producer_id, epoch = producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    coordination.leaders.is_slow = True
    coordination.end(producer, True)
    told = coordination.add((producer_id, epoch + 1), ("out", 0), may_wait=True)
    assert not told.is_told
    coordination.leaders.answer()
    coordination.settle()
    assert told.code is ErrorCode.NONE
    assert list(partitions_of(coordination.transaction)) == [("out", 0)]


def test_who_waits_is_refused_when_leadership_goes(coordination: Coordination) -> None:
    producer_id, epoch = producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    coordination.leaders.is_slow = True
    coordination.end(producer, True)
    told = coordination.add((producer_id, epoch + 1), ("out", 0), may_wait=True)
    coordination.elect(coordination.node.node_id + 1)
    assert told.code is ErrorCode.NOT_COORDINATOR
    coordination.pass_ms(200)


def test_what_version_2_gets_in_each_state(coordination: Coordination) -> None:
    producer_id, _ = coordination.init().producer
    assert coordination.end((producer_id, 0), True).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.end((producer_id, -1), False).code is ErrorCode.PRODUCER_FENCED
    assert coordination.end((producer_id, 0), False).producer == (producer_id, 1)  # nothing added
    assert coordination.end((producer_id, 0), False).producer == (producer_id, 1)  # again
    assert coordination.end((producer_id, 0), True).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.end((producer_id, 1), True).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.end((producer_id, 1), False).producer == (producer_id, 2)
    coordination.add((producer_id, 2), ("in", 0))
    assert coordination.end((producer_id, 1), False).code is ErrorCode.PRODUCER_FENCED
    assert coordination.end((producer_id, 2), True).producer == (producer_id, 3)
    assert coordination.end((producer_id, 2), False).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.end((producer_id, 3), True).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.end((producer_id, 3), False).producer == (producer_id, 4)
    assert coordination.end((producer_id, 9), False).code is ErrorCode.PRODUCER_FENCED
    assert coordination.end((producer_id + 1, 4), False).code is (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )


def test_after_the_last_epoch_a_transaction_ends_with_the_next_producer_id(
    coordination: Coordination,
) -> None:
    producer_id, _ = coordination.init().producer
    coordination.transaction.value.producer_epoch = LAST_EPOCH - 1
    last = (producer_id, LAST_EPOCH - 1)
    coordination.add(last, ("in", 0))
    following = coordination.end(last, True).producer
    assert following[0] != producer_id
    assert following[1] == 0
    assert coordination.markers() == [("in", 0, producer_id, LAST_EPOCH, True)]
    assert coordination.end(last, True).producer == following  # asked again
    assert coordination.end(last, False).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.add(following, ("in", 0)).code is ErrorCode.NONE


def test_the_next_producer_id_waits_for_the_markers_of_the_last_one(
    coordination: Coordination,
) -> None:
    producer_id, _ = coordination.init().producer
    coordination.transaction.value.producer_epoch = LAST_EPOCH - 1
    last = (producer_id, LAST_EPOCH - 1)
    coordination.add(last, ("in", 0))
    coordination.leaders.is_slow = True
    following = coordination.end(last, True).producer
    assert following[0] != producer_id
    wait = ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordination.add(following, ("in", 0), may_wait=False).code is wait
    assert coordination.verify(following, ("in", 0)).code is wait
    assert coordination.verify((following[0] + 1, 0), ("in", 0)).code is (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    recovering = coordination.init(expected=following, settled=False)
    coordination.leaders.answer()
    coordination.settle()
    assert recovering.producer == (following[0], 1)


def test_an_unknown_id_has_no_transaction(coordination: Coordination) -> None:
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordination.add((1, 0), ("in", 0)).code is unknown
    assert coordination.end((1, 0), True).code is unknown
    assert coordination.verify((1, 0), ("in", 0)).code is unknown


def test_verification_tells_which_partitions_are_in_the_transaction(
    coordination: Coordination,
) -> None:
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    assert coordination.verify(producer, ("in", 0), ("in", 1)).outcome.partitions == [
        (TopicPartition("in", 0), ErrorCode.NONE),
        (TopicPartition("in", 1), ErrorCode.TRANSACTION_ABORTABLE),
    ]
    coordination.end(producer, True)
    following = (producer[0], producer[1] + 1)
    assert coordination.verify(following, ("in", 0)).outcome.partitions == [
        (TopicPartition("in", 0), ErrorCode.TRANSACTION_ABORTABLE)
    ]


def test_a_partition_that_is_added_again_writes_nothing(coordination: Coordination) -> None:
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    log = coordination.runtime.partition.online_log()
    end = log.log_end_offset
    assert coordination.add(producer, ("in", 0)).code is ErrorCode.NONE
    assert log.log_end_offset == end


def test_a_transaction_has_a_limit_of_partitions(
    coordination: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.coordinator.transactions.add_partitions.MAX_PARTITIONS", 2)
    producer = coordination.init().producer
    assert coordination.add(producer, ("in", 0), ("in", 1)).code is ErrorCode.NONE
    assert coordination.add(producer, ("out", 0)).code is ErrorCode.POLICY_VIOLATION
    assert coordination.end(producer, True).code is ErrorCode.NONE
