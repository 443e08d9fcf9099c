"""EndTxn, and transactions that the coordinator aborts itself (KIP-98, KIP-360, KIP-890).

With transaction version 2 a decision raises the epoch, and the answer tells the producer its next
one. A request with the epoch before is one that was sent again. What such a producer gets, by the
state it finds (retry: the epoch before, current: the present one):

                     abort                    commit
                     retry      current       retry      current
    EMPTY            fenced     abort         fenced     INVALID_TXN_STATE
    COMPLETE_ABORT   done       abort         invalid    INVALID_TXN_STATE
    COMPLETE_COMMIT  invalid    abort         done       INVALID_TXN_STATE

An abort without partitions raises the epoch as well: a batch may be under way to a partition that
the coordinator does not know of.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.coordinator.transactions.records import TransactionLogValue
from ottla.coordinator.transactions.transaction import (
    EPOCH_PER_TRANSACTION,
    LAST_EPOCH,
    NeedsProducerId,
    Transaction,
    prepared,
)
from ottla.coordinator.transactions.transaction_state import PREPARED, TransactionState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_COMPLETE: Final = {
    True: TransactionState.COMPLETE_COMMIT,
    False: TransactionState.COMPLETE_ABORT,
}
_PREPARE: Final = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}


class EndTransaction(NamedTuple):
    """The end that a producer wants. `client_version` is its transaction version."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    client_version: int


def end_transaction(
    transaction: Transaction | None,
    request: EndTransaction,
    *,
    now_ms: int,
    level: int,
    new_producer_id: int | None,
) -> TransactionLogValue | None:
    """Return the value with the decision, or None if it was made before and is complete.

    Raise ApiError or NeedsProducerId.
    """
    if transaction is None:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.client_version >= EPOCH_PER_TRANSACTION:
        return _end_with_epoch(transaction, request, now_ms, level, new_producer_id)
    return _end(transaction, request, now_ms, level)


def _end(
    transaction: Transaction, request: EndTransaction, now_ms: int, level: int
) -> TransactionLogValue | None:
    """Decide for a client of version 0 or 1, which keeps its epoch."""
    value = transaction.value
    if value.producer_id != request.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if value.producer_epoch != request.epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if transaction.state is _COMPLETE[request.committed]:
        return None
    _check_undecided(transaction, request)
    return prepared(
        transaction,
        committed=request.committed,
        epoch=value.producer_epoch,
        last_epoch=value.last_producer_epoch,
        client_version=request.client_version,
        now_ms=now_ms,
        level=level,
    )


def _end_with_epoch(
    transaction: Transaction,
    request: EndTransaction,
    now_ms: int,
    level: int,
    new_producer_id: int | None,
) -> TransactionLogValue | None:
    """Decide for a client of version 2, which gets another epoch."""
    value, state = transaction.value, transaction.state
    is_after_overflow = (
        value.previous_producer_id == request.producer_id
        and request.epoch == LAST_EPOCH - 1
        and value.producer_epoch == 0
        and state in _COMPLETE.values()
    )
    if value.producer_id != request.producer_id and not is_after_overflow:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_after_overflow or value.producer_epoch == request.epoch + 1
    is_current = value.producer_epoch == request.epoch and not is_after_overflow
    if state in (TransactionState.ONGOING, TransactionState.EMPTY):
        is_retry = False
    elif state in PREPARED:
        is_current = False
    if not is_retry and not is_current:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if is_retry:
        if state is _COMPLETE[request.committed]:
            return None
        if state is _PREPARE[request.committed]:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise ApiError(ErrorCode.INVALID_TXN_STATE)
    if request.committed and state is not TransactionState.ONGOING:
        raise ApiError(ErrorCode.INVALID_TXN_STATE)
    return _with_next_epoch(
        transaction,
        committed=request.committed,
        client_version=request.client_version,
        now_ms=now_ms,
        level=level,
        new_producer_id=new_producer_id,
    )


def fence(
    transaction: Transaction, *, now_ms: int, level: int, new_producer_id: int | None
) -> TransactionLogValue:
    """Return the value that aborts an ongoing transaction and fences its producer.

    The level of the cluster decides which transaction version this has. Raise NeedsProducerId.
    """
    if level >= EPOCH_PER_TRANSACTION:
        return _with_next_epoch(
            transaction,
            committed=False,
            client_version=level,
            now_ms=now_ms,
            level=level,
            new_producer_id=new_producer_id,
        )
    return prepared(
        transaction,
        committed=False,
        epoch=min(transaction.value.producer_epoch + 1, LAST_EPOCH),
        last_epoch=NO_PRODUCER_EPOCH,
        client_version=0,
        now_ms=now_ms,
        level=level,
    )


def _with_next_epoch(
    transaction: Transaction,
    *,
    committed: bool,
    client_version: int,
    now_ms: int,
    level: int,
    new_producer_id: int | None,
) -> TransactionLogValue:
    """Return the decision with the next epoch; after the last one with the next producer id."""
    value = transaction.value
    next_producer_id = NO_PRODUCER_ID
    if transaction.is_exhausted:
        if new_producer_id is None:
            raise NeedsProducerId
        next_producer_id = new_producer_id
    return prepared(
        transaction,
        committed=committed,
        epoch=min(value.producer_epoch + 1, LAST_EPOCH),
        last_epoch=value.producer_epoch,
        client_version=client_version,
        now_ms=now_ms,
        level=level,
        next_producer_id=next_producer_id,
    )


def _check_undecided(transaction: Transaction, request: EndTransaction) -> None:
    """Raise ApiError unless there is a transaction that nobody has ended."""
    if transaction.state is TransactionState.ONGOING:
        return
    if transaction.state is _PREPARE[request.committed]:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    raise ApiError(ErrorCode.INVALID_TXN_STATE)
