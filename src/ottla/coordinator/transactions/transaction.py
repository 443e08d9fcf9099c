"""A transactional id, and the values that its next records may have.

Nothing here changes a transaction. A function takes one, checks what is asked for, and returns the
value of the next record; the replay of that record changes the transaction.

The epoch of a producer grows with every producer that takes over the transactional id, and with
transaction version 2 also with every transaction (KIP-890). Clients get epochs up to
LAST_EPOCH - 1. The last one is left to fence the producer. Then the id gets another producer id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.coordinator.transactions.records import (
    PartitionsOfTopic,
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.coordinator.transactions.transaction_state import (
    IDLE,
    PREPARED,
    PREVIOUS,
    TransactionState,
)
from ottla.model.ids import NO_PRODUCER_ID, TopicPartition

LAST_EPOCH: Final = 0x7FFF
NO_TIMEOUT: Final = 0x7FFFFFFF
"""The timeout of two-phase commit (KIP-939): such a transaction is never aborted by itself."""

EPOCH_PER_TRANSACTION: Final = 2
"""The transaction version from which on each transaction has an epoch of its own (KIP-890)."""


class NeedsProducerId(Exception):
    """The decision needs a new producer id. Get one, and decide again."""


class Transaction:
    """A transactional id as its last record describes it."""

    __slots__ = ("partitions", "state", "transactional_id", "value")

    def __init__(self, transactional_id: str, value: TransactionLogValue) -> None:
        self.transactional_id = transactional_id
        self.install(value)

    def install(self, value: TransactionLogValue) -> None:
        """Take over the value of a record."""
        self.value = value
        self.state = TransactionState(value.transaction_status)
        self.partitions: Mapping[str, set[int]] = {
            topic.topic: set(topic.partition_ids) for topic in value.transaction_partitions or ()
        }

    @property
    def key(self) -> TransactionLogKey:
        """The key of its records."""
        return TransactionLogKey(transactional_id=self.transactional_id)

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no epoch left for another producer."""
        return is_exhausted(self.value.producer_epoch)

    def holds(self, topic: str, partition: int) -> bool:
        """Return True if a partition is in the transaction."""
        return partition in self.partitions.get(topic, ())

    def holds_all(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return True if all partitions are in the transaction."""
        return all(self.holds(*partition) for partition in partitions)

    def is_ending_for(self, producer_id: int, epoch: int) -> bool:
        """Return True if markers are being written, and this producer goes on after that.

        It may have another producer id than the transaction that ends.
        """
        return self.state in PREPARED and after_completion(self.value) == (producer_id, epoch)

    def is_overdue(self, now_ms: int) -> bool:
        """Return True if its transaction takes longer than its timeout."""
        value = self.value
        return (
            self.state is TransactionState.ONGOING
            and value.transaction_timeout_ms != NO_TIMEOUT
            and value.transaction_start_timestamp_ms + value.transaction_timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return True if nobody has used the id for so long that it is forgotten."""
        last_ms = self.value.transaction_last_update_timestamp_ms
        return self.state in IDLE and last_ms + expiration_ms <= now_ms


def is_exhausted(epoch: int) -> bool:
    """Return True if an epoch is the last that a client may have."""
    return epoch >= LAST_EPOCH - 1


def new_id(producer_id: int, timeout_ms: int, now_ms: int, level: int) -> TransactionLogValue:
    """Return the first value of a transactional id."""
    return TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_timeout_ms=timeout_ms,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=now_ms,
        level=level,
    )


def empty(
    transaction: Transaction,
    *,
    producer_id: int,
    epoch: int,
    last_epoch: int,
    timeout_ms: int,
    now_ms: int,
    level: int,
) -> TransactionLogValue:
    """Return the value after InitProducerId."""
    _check(transaction, TransactionState.EMPTY)
    value = transaction.value
    return TransactionLogValue(
        producer_id=producer_id,
        previous_producer_id=value.producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        transaction_timeout_ms=timeout_ms,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=now_ms,
        client_transaction_version=value.client_transaction_version,
        level=level,
    )


def ongoing(
    transaction: Transaction,
    added: Iterable[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
    level: int,
) -> TransactionLogValue:
    """Return the value with more partitions. The first ones begin a transaction."""
    _check(transaction, TransactionState.ONGOING)
    value = transaction.value
    is_first = transaction.state in IDLE
    partitions = {} if is_first else {t: set(p) for t, p in transaction.partitions.items()}
    for topic, partition in added:
        partitions.setdefault(topic, set()).add(partition)
    return TransactionLogValue(
        producer_id=value.producer_id,
        previous_producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_epoch=value.last_producer_epoch,
        transaction_timeout_ms=value.transaction_timeout_ms,
        transaction_status=TransactionState.ONGOING,
        transaction_partitions=[
            PartitionsOfTopic(topic=topic, partition_ids=sorted(indexes))
            for topic, indexes in partitions.items()
        ],
        transaction_last_update_timestamp_ms=now_ms,
        transaction_start_timestamp_ms=(
            now_ms if is_first else value.transaction_start_timestamp_ms
        ),
        client_transaction_version=client_version,
        level=level,
    )


def prepared(
    transaction: Transaction,
    *,
    committed: bool,
    epoch: int,
    last_epoch: int,
    client_version: int,
    now_ms: int,
    level: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> TransactionLogValue:
    """Return the value with the decision to commit or to abort."""
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    _check(transaction, state)
    value = transaction.value
    has_transaction = transaction.state is TransactionState.ONGOING
    return TransactionLogValue(
        producer_id=value.producer_id,
        previous_producer_id=value.producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        transaction_timeout_ms=value.transaction_timeout_ms,
        transaction_status=state,
        transaction_partitions=list(value.transaction_partitions or ()) if has_transaction else (),
        transaction_last_update_timestamp_ms=now_ms,
        transaction_start_timestamp_ms=(
            value.transaction_start_timestamp_ms if has_transaction else now_ms
        ),
        client_transaction_version=client_version,
        level=level,
    )


def completed(transaction: Transaction, *, now_ms: int, level: int) -> TransactionLogValue:
    """Return the value once every partition has its marker."""
    is_commit = transaction.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    _check(transaction, state)
    value = transaction.value
    producer_id, epoch = after_completion(value)
    return TransactionLogValue(
        producer_id=producer_id,
        previous_producer_id=value.producer_id,
        producer_epoch=epoch,
        last_producer_epoch=value.last_producer_epoch,
        transaction_timeout_ms=value.transaction_timeout_ms,
        transaction_status=state,
        transaction_partitions=(),
        transaction_last_update_timestamp_ms=now_ms,
        transaction_start_timestamp_ms=value.transaction_start_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
        level=level,
    )


def after_completion(value: TransactionLogValue) -> tuple[int, int]:
    """Return the producer id and epoch that follow a decided transaction."""
    if value.next_producer_id != NO_PRODUCER_ID:
        return value.next_producer_id, 0
    return value.producer_id, value.producer_epoch


def _check(transaction: Transaction, state: TransactionState) -> None:
    assert transaction.state in PREVIOUS[state], (
        f"{state.name} does not follow {transaction.state.name}"
    )
