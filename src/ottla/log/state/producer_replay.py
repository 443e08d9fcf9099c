"""Update producer state from batches that are in the log already, or in the leader's log.

Only transaction markers are decoded: they are control batches of one record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.log.damage import DamagedLog
from ottla.log.file_names import LOG
from ottla.log.segment.txn_index import AbortedTxn
from ottla.log.state.producer_snapshot import CorruptSnapshot
from ottla.log.state.producer_states import ProducerStates
from ottla.log.state.producer_table import ProducerBatch
from ottla.ports import Buffer
from ottla.records.batch import Batch, CorruptBatch

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment.segment import Segment


class Marker(NamedTuple):
    """The record of a control batch that ends a transaction."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int


def read_marker(batch_bytes: Buffer) -> Marker | None:
    """Return the transaction marker in a control batch, or None if it holds something else.

    Raise CorruptBatch.
    """
    from ottla.records.control import ControlType, control_type, coordinator_epoch
    from ottla.records.record import records_of

    record = next(iter(records_of(batch_bytes)), None)
    if record is None:
        return None  # compaction has emptied the batch
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    is_abort = kind is ControlType.ABORT
    return Marker(is_abort, coordinator_epoch(record.value), record.timestamp)


def update_producers(
    producers: ProducerStates, batch: Batch, marker: Marker | None
) -> AbortedTxn | None:
    """Add a producer's batch to the state; return the transaction that its marker aborts."""
    if not batch.is_control:
        summary = ProducerBatch(
            batch.base_sequence,
            batch.last_sequence,
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
        )
        producers.append_unchecked(
            batch.producer_id, batch.producer_epoch, summary, batch.is_transactional
        )
        return None
    if marker is None:
        return None
    completed = producers.end_transaction(
        batch.producer_id,
        batch.producer_epoch,
        marker.coordinator_epoch,
        batch.base_offset,
        marker.timestamp,
        marker.is_abort,
    )
    if completed is None or not completed.is_aborted:
        return None
    stable = producers.first_ongoing_offset()
    if stable is None:
        stable = completed.last_offset + 1
    return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)


def rebuild_producers(
    log: Log, notes: list[str], *, is_clean: bool, newest: int | None = None
) -> None:
    """Set producer state as of the log end: the newest good snapshot, then the batches after it.

    With `newest` no later snapshot is used. The batches after it bring their aborted transactions
    back to the transaction indexes.
    """
    log.producers.clear()
    log.snapshots.remove_from(log.written_end + 1)
    log.snapshots.remove_strays(set(log.segments.base_offsets))
    start = log.written_end if is_clean else log.segments.base_offsets[0]
    while (offset := log.snapshots.newest_upto(newest)) is not None:
        try:
            log.producers.load(log.snapshots.read(offset))
        except CorruptSnapshot as error:
            notes.append(
                f"{log.snapshots.path(offset)}: {error}; removed,"
                " the state of producers is read from the log instead"
            )
            log.snapshots.remove(offset)
            start = log.segments.base_offsets[0]  # state is missing, even after a clean shutdown
            continue
        start = offset
        break
    if start < log.written_end:
        _replay(log, start, notes)


def _replay(log: Log, start_offset: int, notes: list[str]) -> None:
    """Add all batches from an offset to the log end to the producer state."""
    for segment in log.segments.from_offset(start_offset):
        if not segment.size:
            continue
        try:
            _replay_segment(log, segment, start_offset)
        except CorruptBatch as error:
            problem = DamagedLog(segment.path(LOG), str(error))
            notes.append(f"{problem}; the state of its producers after that is unknown")
        except DamagedLog as problem:
            notes.append(f"{problem}; the state of its producers after that is unknown")


def _replay_segment(log: Log, segment: Segment, start_offset: int) -> None:
    first = segment.locate(start_offset)
    for batch in () if first is None else segment.batches_from(first.position):
        if batch.producer_id < 0 or batch.base_offset < start_offset:
            continue
        marker = read_marker(segment.read_batch(batch)) if batch.is_control else None
        aborted = update_producers(log.producers, batch, marker)
        log.producers.mark_written()
        changed = None if aborted is None else segment.add_aborted(aborted)
        if changed is not None:
            log.flush_state.note_changed(changed)
