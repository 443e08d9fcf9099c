"""InitProducerId with transactional ids: epochs, recovery, fencing, exhaustion."""

from __future__ import annotations

from errno import ENOSPC

import pytest

from ottla.coordinator.transactions.transaction import LAST_EPOCH
from ottla.coordinator.transactions.transaction_state import TransactionState
from ottla.model.errors import ErrorCode
from tests.support.transaction_coordinator import ID, Coordination


def test_every_producer_gets_the_next_epoch(coordination: Coordination) -> None:
    producer_id, epoch = coordination.init().producer
    assert epoch == 0
    assert coordination.init().producer == (producer_id, 1)
    assert coordination.transaction.state is TransactionState.EMPTY


def test_ids_have_producers_of_their_own(coordination: Coordination) -> None:
    assert coordination.init().producer[0] != coordination.init(transactional_id="b").producer[0]


def test_an_answer_waits_until_the_record_is_committed(coordination: Coordination) -> None:
    told = coordination.init(settled=False)
    assert not told.is_told
    coordination.settle()
    assert told.is_told


def test_a_producer_that_goes_on_gets_the_next_epoch_once(coordination: Coordination) -> None:
    producer_id, epoch = coordination.init().producer
    following = coordination.init((producer_id, epoch)).producer
    assert following == (producer_id, 1)
    assert coordination.init((producer_id, epoch)).producer == following  # asked again
    assert coordination.init(following).producer == (producer_id, 2)
    assert coordination.init((producer_id, epoch)).code is ErrorCode.PRODUCER_FENCED


def test_another_producer_ends_the_recovery(coordination: Coordination) -> None:
    zombie = coordination.init().producer
    coordination.init()
    assert coordination.init(zombie).code is ErrorCode.PRODUCER_FENCED


def test_a_producer_with_a_foreign_id_is_fenced(coordination: Coordination) -> None:
    producer_id, epoch = coordination.init().producer
    assert coordination.init((producer_id + 77, epoch)).code is ErrorCode.PRODUCER_FENCED


def test_an_unknown_producer_that_goes_on_begins_anew(coordination: Coordination) -> None:
    assert coordination.init((12345, 6)).producer[1] == 0


def test_an_empty_or_endless_id_is_refused(coordination: Coordination) -> None:
    assert coordination.init(transactional_id="").code is ErrorCode.INVALID_REQUEST
    assert coordination.init(transactional_id="a" * 40_000).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_is_aborted_first(level: int) -> None:
    coordination = Coordination(level)
    producer_id, epoch = producer = coordination.init().producer
    coordination.add(producer, ("in", 0), version=level)
    assert coordination.init().code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordination.markers() == [("in", 0, producer_id, epoch + 1, False)]
    assert coordination.transaction.state is TransactionState.COMPLETE_ABORT
    assert coordination.init().producer == (producer_id, epoch + 2)
    assert coordination.end(producer, True, version=level).code is ErrorCode.PRODUCER_FENCED


def test_a_zombie_does_not_abort_the_transaction_of_its_successor(
    coordination: Coordination,
) -> None:
    zombie = coordination.init().producer
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    assert coordination.init(zombie).code is ErrorCode.PRODUCER_FENCED
    assert coordination.transaction.state is TransactionState.ONGOING


def test_who_comes_while_markers_are_written_waits_a_moment(coordination: Coordination) -> None:
    producer_id, epoch = producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    coordination.leaders.is_slow = True
    coordination.end(producer, True)
    told = coordination.init()
    assert not told.is_told
    coordination.leaders.answer()
    coordination.settle()
    assert told.producer == (producer_id, epoch + 2)


def test_who_waits_too_long_must_ask_again(coordination: Coordination) -> None:
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    coordination.leaders.is_slow = True
    coordination.end(producer, True)
    told = coordination.init()
    coordination.pass_ms(101)
    assert told.code is ErrorCode.CONCURRENT_TRANSACTIONS
    coordination.leaders.answer()
    coordination.settle()
    assert coordination.init().producer[1] == 2


def with_epoch(coordination: Coordination, epoch: int) -> tuple[int, int]:
    """Let the transactional id have an epoch, as if it had been used for long."""
    producer_id, _ = coordination.init().producer
    coordination.transaction.value.producer_epoch = epoch
    return producer_id, epoch


def test_after_the_last_epoch_comes_another_producer_id(coordination: Coordination) -> None:
    producer_id, _ = with_epoch(coordination, LAST_EPOCH - 2)
    assert coordination.init().producer == (producer_id, LAST_EPOCH - 1)
    next_id, epoch = coordination.init().producer
    assert next_id != producer_id
    assert epoch == 0


def test_a_producer_that_goes_on_after_the_last_epoch_may_ask_again(
    coordination: Coordination,
) -> None:
    last = with_epoch(coordination, LAST_EPOCH - 1)
    following = coordination.init(last).producer
    assert following[0] != last[0]
    assert coordination.init(last).producer == following
    assert coordination.init((last[0], 5)).code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("level", [0, 2])
def test_a_fence_with_the_last_epoch(level: int) -> None:
    coordination = Coordination(level)
    producer = with_epoch(coordination, LAST_EPOCH - 1)
    coordination.add(producer, ("in", 0), version=level)
    assert coordination.init().code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordination.markers() == [("in", 0, producer[0], LAST_EPOCH, False)]
    assert coordination.init().producer[0] != producer[0]


def test_a_failed_write_changes_nothing(coordination: Coordination) -> None:
    producer_id, epoch = coordination.init().producer
    told = coordination.init(settled=False)
    coordination.files.fail("write", OSError(ENOSPC, "full"), path="*__transaction*", times=1)
    coordination.settle()
    assert told.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordination.pass_ms(1100, 10)
    assert coordination.init().producer == (producer_id, epoch + 1)
    assert list(coordination.runtime.shard.transactions) == [ID]
