"""Producer state from the batches of a log, after a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.names import LOG, TXN_INDEX
from ottla.log.producers import ProducerBatch
from ottla.log.txn_index import AbortedTxn, append_txn
from ottla.records.batch import Batch, CorruptBatch

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment import Segment


def replay(log: Log, start_offset: int, notes: list[str]) -> None:
    """Take all batches from an offset to the log end into the producer state."""
    for segment in log.segments[log.segment_index(start_offset) :]:
        if not segment.size:
            continue
        try:
            _replay_segment(log, segment, start_offset)
        except CorruptBatch as error:
            notes.append(
                f"{segment.path(LOG)} is damaged {error}; the state of its producers from there"
                " on is not known"
            )


def _replay_segment(log: Log, segment: Segment, start_offset: int) -> None:
    position = segment.offset_index.lookup(start_offset)[1]
    for batch in segment.batches_from(position):
        if batch.producer_id >= 0 and batch.base_offset >= start_offset:
            _replay_batch(log, segment, batch)


def _replay_batch(log: Log, segment: Segment, batch: Batch) -> None:
    if batch.is_control:
        _replay_marker(log, segment, batch)
        return
    mark = ProducerBatch(
        batch.base_sequence,
        batch.last_sequence,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
    )
    log.producers.replay_data(batch.producer_id, batch.producer_epoch, mark, batch.is_transactional)


def _replay_marker(log: Log, segment: Segment, batch: Batch) -> None:
    from ottla.records.control import ControlType, control_type, coordinator_epoch
    from ottla.records.record import records_of

    record = next(iter(records_of(segment.read_batch(batch))), None)
    if record is None:
        return  # compaction has emptied the batch
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return
    completed = log.producers.replay_marker(
        batch.producer_id,
        batch.producer_epoch,
        coordinator_epoch(record.value),
        batch.base_offset,
        record.timestamp,
        kind is ControlType.ABORT,
    )
    if completed is not None and completed.is_aborted:
        stable = min(log.producers.ongoing.values(), default=completed.last_offset + 1)
        aborted = AbortedTxn(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )
        append_txn(log.resources.files, segment.path(TXN_INDEX), aborted)
