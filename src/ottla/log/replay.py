"""Producer state from the batches of a log, after a snapshot."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ottla.log.names import TXN_INDEX
from ottla.log.producers import ProducerBatch
from ottla.log.txn_index import AbortedTxn, append_txn
from ottla.records.batch import Batch

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment import Segment

_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_ABORT = 0
_COMMIT = 1


def replay(log: Log, start_offset: int) -> None:
    """Take all batches from an offset to the log end into the producer state."""
    for segment in log.segments[log.segment_index(start_offset) :]:
        if not segment.size:
            continue
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
    from ottla.records.record import records_of

    record = next(iter(records_of(segment.read_batch(batch))), None)
    if record is None or record.key is None or record.value is None:
        return  # compaction has emptied the batch
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (_ABORT, _COMMIT):
        return
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    completed = log.producers.replay_marker(
        batch.producer_id,
        batch.producer_epoch,
        coordinator_epoch,
        batch.base_offset,
        record.timestamp,
        kind == _ABORT,
    )
    if completed is not None and completed.is_aborted:
        stable = min(log.producers.ongoing.values(), default=completed.last_offset + 1)
        aborted = AbortedTxn(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )
        append_txn(log.resources.files, segment.path(TXN_INDEX), aborted)
