"""AddPartitionsToTxn, AddOffsetsToTxn: partitions become part of a transaction (KIP-98, KIP-890).

A partition is added before the first batch is written to it. So whoever coordinates the
transaction later knows where markers must go.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from ottla.coordinator.transactions.records import TransactionLogValue
from ottla.coordinator.transactions.transaction import Transaction, ongoing
from ottla.coordinator.transactions.transaction_state import PREPARED, TransactionState
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition

MAX_PARTITIONS: Final = 20_000
"""How many partitions a transaction may have: every one that is added writes all of them."""


class AddPartitions(NamedTuple):
    """Partitions that a producer wants to write to. `client_version` is its transaction version."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Collection[TopicPartition]
    client_version: int


def add_partitions(
    transaction: Transaction | None, request: AddPartitions, *, now_ms: int, level: int
) -> TransactionLogValue | None:
    """Return the value of the next record, or None if all partitions are in the transaction."""
    found = check_producer(transaction, request)
    if found.state is TransactionState.ONGOING and found.holds_all(request.partitions):
        return None
    if found.state is TransactionState.ONGOING:
        count = sum(map(len, found.partitions.values()))
        if count + len(request.partitions) > MAX_PARTITIONS:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
    return ongoing(
        found,
        request.partitions,
        client_version=request.client_version,
        now_ms=now_ms,
        level=level,
    )


def verify_partitions(
    transaction: Transaction | None, request: AddPartitions
) -> list[tuple[TopicPartition, ErrorCode]]:
    """Return NONE for each partition in the transaction, TRANSACTION_ABORTABLE for others."""
    found = check_producer(transaction, request)
    is_ongoing = found.state is TransactionState.ONGOING
    return [
        (
            each,
            ErrorCode.NONE
            if is_ongoing and found.holds(*each)
            else ErrorCode.TRANSACTION_ABORTABLE,
        )
        for each in request.partitions
    ]


def check_producer(transaction: Transaction | None, request: AddPartitions) -> Transaction:
    """Return the transaction if the producer may go on with it, or raise ApiError."""
    if transaction is not None and transaction.is_ending_for(request.producer_id, request.epoch):
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction is None or transaction.value.producer_id != request.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.value.producer_epoch != request.epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction
