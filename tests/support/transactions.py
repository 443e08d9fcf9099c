"""Transactional batches, markers, and what a consumer with read_committed sees."""

from __future__ import annotations

from ottla.log.log import Log
from ottla.log.segment.txn_index import unpack_entries
from ottla.log.state.verifications import NOT_NEEDED
from ottla.records.batch import Batch, scan
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch, records_of
from tests.support.log import NOW


def transactional(
    producer_id: int,
    base_sequence: int = 0,
    *,
    count: int = 1,
    producer_epoch: int = 0,
    value: bytes = b"v" * 20,
    timestamp: int = NOW,
) -> bytearray:
    """Build a batch of a transaction as a client sends it."""
    return build_batch(
        [(b"k", value, timestamp, ())] * count,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=True,
    )


def append_in_transaction(
    log: Log, batch: bytearray, *, guard: int = NOT_NEEDED, leader_epoch: int = 0
) -> int:
    """Append a client's batch as part of a transaction, without writing it."""
    return log.append_as_leader(
        batch, memoryview(batch), 0, len(batch), leader_epoch, NOW, guard=guard
    )


def end_transaction(
    log: Log,
    producer_id: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    leader_epoch: int = 0,
) -> int:
    """Append the marker that ends a transaction, without writing it."""
    marker = build_marker(
        ControlType.COMMIT if commit else ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW,
    )
    return log.append_from_coordinator(
        marker, leader_epoch, NOW, transaction_version=transaction_version
    )


def read_committed(log: Log, offset: int | None = None, max_bytes: int = 300) -> list[Batch]:
    """Return the data batches that a consumer with read_committed shows, read in pieces.

    It works as the consumers of Kafka's clients do.
    """
    offset = log.log_start_offset if offset is None else offset
    shown: list[Batch] = []
    while True:
        upto = log.last_stable_offset
        piece = log.read(offset, max_bytes, upto, at_least_one=True)
        if piece is None:
            return shown
        aborted = sorted(
            (each.first_offset, each.producer_id)
            for each in unpack_entries(log.aborted_transactions(offset, piece, upto))
        )
        ignored: set[int] = set()
        content = piece.read()
        for batch in scan(content, 0, len(content)):
            while aborted and aborted[0][0] <= batch.last_offset:
                ignored.add(aborted.pop(0)[1])
            if batch.is_control:
                if _is_abort(content, batch):
                    ignored.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in ignored):
                shown.append(batch)
            offset = batch.next_offset


def _is_abort(content: bytes, batch: Batch) -> bool:
    (record,) = records_of(content[batch.position : batch.end])
    assert record.key is not None
    return record.key[3] == ControlType.ABORT
