"""What a leader asks of batches in transactions, and of the markers that end them.

In this order, as in Kafka:
    a duplicate                            the same offset is returned again
    older epoch                            INVALID_PRODUCER_EPOCH
    no transaction, and none verified      INVALID_TXN_STATE
    sequence after one that is verified    OUT_OF_ORDER_SEQUENCE_NUMBER
    the rules for all producers            see `producer_states`

A marker must not have an older epoch than its producer, nor than its coordinator had before
(TRANSACTION_COORDINATOR_FENCED). With transaction version 2 the coordinator raises the epoch with
each transaction. So a marker in the epoch of an open transaction is one of an earlier transaction
(KIP-1228). In the epoch of the last marker it is the same one again, and is written again. No epoch
follows the last one: an open transaction with that one can be ended by its own epoch.
"""

from __future__ import annotations

from ottla.log.state.producer_replay import Marker, read_marker
from ottla.log.state.producer_states import ProducerStates
from ottla.log.state.producer_table import ProducerBatch, ProducerEntry
from ottla.log.state.verifications import NOT_NEEDED, NOT_TRANSACTIONAL, Verification
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import Batch

LAST_EPOCH = 0x7FFF
EPOCH_PER_TRANSACTION = 2
"""The first transaction version with an epoch for each transaction."""


def check_client_batch(
    producers: ProducerStates,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    last_sequence: int,
    guard: int,
) -> ProducerBatch | None:
    """Return None if a client's batch may be appended, or the original of a duplicate.

    `guard` is one of `verifications`. Raise ApiError if the batch is refused.
    """
    if guard == NOT_TRANSACTIONAL:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "A transactional batch needs a transactional id",
        )
    entry = producers.entries.get(producer_id)
    if not _is_in_transaction(entry, producer_epoch):
        if entry is not None and entry.producer_epoch == producer_epoch:
            duplicate = entry.find(base_sequence, last_sequence)
            if duplicate is not None:
                return duplicate
        _check_verified(producers, producer_id, producer_epoch, guard)
    verification = producers.verifications.get(producer_id)
    if verification is not None:
        _check_lowest_sequence(producer_id, base_sequence, entry, verification)
    return producers.check(producer_id, producer_epoch, base_sequence, last_sequence)


def check_outside_transaction(producers: ProducerStates, producer_id: int) -> None:
    """Raise INVALID_TXN_STATE for a batch outside of the transaction its producer has open."""
    if producer_id in producers.ongoing:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"Producer {producer_id} has an open transaction, and the batch is not part of it",
        )


def check_from_coordinator(
    producers: ProducerStates,
    batch: Batch,
    content: bytearray,
    guard: int,
    transaction_version: int,
) -> Marker | None:
    """Check a batch of a coordinator; return the marker in it if it is one.

    Offsets in a client's transaction have no sequences. Raise ApiError.
    """
    producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
    assert batch.is_transactional, batch
    if producer_id < 0 or producer_epoch < 0:  # they come from requests
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"A transaction has no producer {producer_id} with epoch {producer_epoch}",
        )
    if not batch.is_control:
        entry = producers.entries.get(producer_id)
        if not _is_in_transaction(entry, producer_epoch):
            _check_verified(producers, producer_id, producer_epoch, guard)
        return None
    marker = read_marker(content)
    assert marker is not None, "a control batch of a coordinator ends a transaction"
    check_marker(
        producers, producer_id, producer_epoch, marker.coordinator_epoch, transaction_version
    )
    return marker


def check_marker(
    producers: ProducerStates,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    transaction_version: int,
) -> None:
    """Raise ApiError if a marker is one of an old coordinator, or of an old transaction."""
    entry = producers.entries.get(producer_id)
    if entry is None:
        return
    is_open = entry.current_txn_first_offset >= 0
    if producer_epoch < entry.producer_epoch or (
        transaction_version >= EPOCH_PER_TRANSACTION
        and is_open
        and producer_epoch == entry.producer_epoch != LAST_EPOCH
    ):
        raise _stale_epoch(producer_id, producer_epoch, entry.producer_epoch)
    if coordinator_epoch < entry.coordinator_epoch:
        raise ApiError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Coordinator epoch {coordinator_epoch} is older than {entry.coordinator_epoch} of"
            f" the last marker of producer {producer_id}",
        )


def begin_verification(
    producers: ProducerStates,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    now_ms: int,
    *,
    adds_partition: bool,
) -> int | None:
    """Return the guard for asking the coordinator about a transaction; None if it has begun.

    Raise INVALID_PRODUCER_EPOCH if the producer is fenced already.
    """
    entry = producers.entries.get(producer_id)
    if entry is not None and producer_epoch < entry.producer_epoch:
        raise _stale_epoch(producer_id, producer_epoch, entry.producer_epoch)
    if _is_in_transaction(entry, producer_epoch):
        return None
    return producers.verifications.begin(
        producer_id, producer_epoch, base_sequence, now_ms, adds_partition=adds_partition
    )


def _is_in_transaction(entry: ProducerEntry | None, producer_epoch: int) -> bool:
    """Return True if a transaction has begun. One of an older epoch may have ended elsewhere."""
    return (
        entry is not None
        and entry.current_txn_first_offset >= 0
        and entry.producer_epoch == producer_epoch
    )


def _check_verified(
    producers: ProducerStates, producer_id: int, producer_epoch: int, guard: int
) -> None:
    entry = producers.entries.get(producer_id)
    if entry is not None and producer_epoch < entry.producer_epoch:
        raise _stale_epoch(producer_id, producer_epoch, entry.producer_epoch)
    verification = producers.verifications.get(producer_id)
    if guard != NOT_NEEDED and (verification is None or verification.guard != guard):
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE, "The batch is not part of an ongoing transaction"
        )


def _check_lowest_sequence(
    producer_id: int, base_sequence: int, entry: ProducerEntry | None, verification: Verification
) -> None:
    is_new = entry is None or not entry.packed
    if base_sequence > verification.lowest_sequence or (
        verification.adds_partition and is_new and base_sequence
    ):
        lowest = 0 if verification.adds_partition and is_new else verification.lowest_sequence
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {producer_id} sent sequence {base_sequence} before {lowest} is written",
        )


def _stale_epoch(producer_id: int, producer_epoch: int, current_epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Producer {producer_id} has epoch {producer_epoch}, but epoch {current_epoch} is known"
        " already",
    )
