"""Transactions that time out, and transactional ids that expire."""

from __future__ import annotations

import pytest

from ottla.coordinator.transactions.transaction import NO_TIMEOUT
from ottla.coordinator.transactions.transaction_state import TransactionState
from ottla.model.errors import ApiError, ErrorCode
from tests.support.transaction_coordinator import ID, TIMEOUT_MS, Coordination


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted(level: int) -> None:
    coordination = Coordination(level)
    producer_id, epoch = producer = coordination.init().producer
    coordination.add(producer, ("in", 0), version=level)
    coordination.pass_ms(TIMEOUT_MS - 1000, 1000)
    assert coordination.transaction.state is TransactionState.ONGOING
    coordination.pass_ms(12_000, 1000)
    assert coordination.markers() == [("in", 0, producer_id, epoch + 1, False)]
    assert coordination.transaction.state is TransactionState.COMPLETE_ABORT
    assert coordination.add(producer, ("in", 0), version=level).code is ErrorCode.PRODUCER_FENCED


def test_an_old_client_cannot_end_what_has_timed_out() -> None:
    coordination = Coordination(1)
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0), version=0)
    coordination.pass_ms(TIMEOUT_MS + 12_000, 1000)
    for committed in (True, False):
        assert coordination.end(producer, committed, version=0).code is ErrorCode.PRODUCER_FENCED
    assert coordination.init(producer).code is ErrorCode.PRODUCER_FENCED


def test_a_client_of_version_2_may_abort_what_has_timed_out(coordination: Coordination) -> None:
    producer_id, epoch = producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    coordination.pass_ms(TIMEOUT_MS + 12_000, 1000)
    assert coordination.end(producer, True).code is ErrorCode.INVALID_TXN_STATE
    assert coordination.end(producer, False).producer == (producer_id, epoch + 1)


def test_a_two_phase_commit_never_times_out(coordination: Coordination) -> None:
    producer = coordination.init(timeout_ms=NO_TIMEOUT).producer
    coordination.add(producer, ("in", 0))
    coordination.pass_ms(3_600_000, 10_000)
    assert coordination.transaction.state is TransactionState.ONGOING


def test_a_transaction_times_out_after_a_failover(coordination: Coordination) -> None:
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    coordination.pass_ms(TIMEOUT_MS // 2, 1000)
    coordination.restart()
    coordination.pass_ms(TIMEOUT_MS // 2 + 12_000, 1000)
    assert coordination.transaction.state is TransactionState.COMPLETE_ABORT


def test_ids_that_nobody_uses_expire() -> None:
    coordination = Coordination(
        transactional_id_expiration_ms="5000",
        transaction_remove_expired_transaction_cleanup_interval_ms="1000",
    )
    coordination.init(transactional_id="unused")
    producer = coordination.init().producer
    coordination.add(producer, ("in", 0))
    coordination.pass_ms(7000, 100)
    ids = [
        transactional_id
        for runtime in coordination.coordinator.host.runtimes.values()
        for transactional_id in runtime.shard.transactions
    ]
    assert ids == [ID]  # its transaction is open
    coordination.end(producer, True)
    coordination.pass_ms(7000, 100)
    assert coordination.runtime.shard.transactions == {}
    coordination.restart()
    assert coordination.runtime.shard.transactions == {}
    assert coordination.end(producer, True).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_timeouts_have_a_limit() -> None:
    coordination = Coordination(transaction_max_timeout_ms="5000")
    timeout_ms = coordination.coordinator.timeout_ms
    assert timeout_ms(5000, two_phase=False) == 5000
    for asked_ms in (5001, 0, -1):
        with pytest.raises(ApiError) as refused:
            timeout_ms(asked_ms, two_phase=False)
        assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_two_phase_commit_must_be_allowed() -> None:
    with pytest.raises(ApiError) as refused:
        Coordination().coordinator.timeout_ms(1, two_phase=True)
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allowing = Coordination(transaction_two_phase_commit_enable="true")
    assert allowing.coordinator.timeout_ms(1, two_phase=True) == NO_TIMEOUT
