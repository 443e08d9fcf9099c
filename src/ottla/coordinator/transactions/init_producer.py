"""InitProducerId: a producer takes over a transactional id (KIP-98, KIP-360, KIP-939)."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.transactions.end_transaction import fence
from ottla.coordinator.transactions.records import TransactionLogValue
from ottla.coordinator.transactions.transaction import (
    NeedsProducerId,
    Transaction,
    empty,
    is_exhausted,
    new_id,
)
from ottla.coordinator.transactions.transaction_state import PREPARED, TransactionState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is, as it was told before."""

    producer_id: int
    epoch: int


class InitProducer(NamedTuple):
    """What a producer asks for. `expected` is None unless it goes on after an error."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None


def init_producer(
    transaction: Transaction | None,
    request: InitProducer,
    *,
    now_ms: int,
    level: int,
    new_producer_id: int | None,
) -> TransactionLogValue:
    """Return the value of the next record.

    Its state is PREPARE_ABORT if a transaction had to be aborted first: then the producer must ask
    again. Raise NeedsProducerId, CONCURRENT_TRANSACTIONS or PRODUCER_FENCED.
    """
    if transaction is None:
        if new_producer_id is None:
            raise NeedsProducerId
        return new_id(new_producer_id, request.timeout_ms, now_ms, level)
    expected = request.expected
    if expected is None or not transaction.is_ending_for(*expected):
        _check_expected(transaction, expected)
    if transaction.state in PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is TransactionState.ONGOING:
        return fence(transaction, now_ms=now_ms, level=level, new_producer_id=new_producer_id)
    return _take_over(transaction, request, now_ms, level, new_producer_id)


def _check_expected(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> None:
    """Raise PRODUCER_FENCED if another producer has taken over since then.

    A producer may name the previous id with its last epoch: it did not get the answer that gave it
    the next id.
    """
    if expected is None:
        return
    value = transaction.value
    if expected.producer_id == value.producer_id:
        if expected.epoch in (value.producer_epoch, value.last_producer_epoch):
            return
    elif (
        expected.producer_id == value.previous_producer_id
        and expected.epoch == value.last_producer_epoch
        and is_exhausted(expected.epoch)
    ):
        return
    raise ApiError(ErrorCode.PRODUCER_FENCED)


def _take_over(
    transaction: Transaction,
    request: InitProducer,
    now_ms: int,
    level: int,
    new_producer_id: int | None,
) -> TransactionLogValue:
    value, expected = transaction.value, request.expected
    producer_id = value.producer_id
    if transaction.is_exhausted and (expected is None or expected.epoch == value.producer_epoch):
        if new_producer_id is None:
            raise NeedsProducerId
        producer_id, epoch = new_producer_id, 0
        last_epoch = NO_PRODUCER_EPOCH if expected is None else value.producer_epoch
    elif expected is None:
        epoch, last_epoch = value.producer_epoch + 1, NO_PRODUCER_EPOCH
    elif expected.epoch == value.producer_epoch:
        epoch, last_epoch = value.producer_epoch + 1, value.producer_epoch
    elif expected.epoch == value.last_producer_epoch:
        # It asks again for an epoch that it was given. No other producer has taken over: that
        # would have left no last epoch.
        epoch, last_epoch = value.producer_epoch, value.last_producer_epoch
    else:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    return empty(
        transaction,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=request.timeout_ms,
        now_ms=now_ms,
        level=level,
    )
