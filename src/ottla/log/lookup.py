"""Find batches by offset and by timestamp.

Reads near the end of the log are answered from the recent batches in memory. Others find the
segment, then look into its offset index, then read batch headers for a few KiB. Only written
batches are found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.log.file_names import LOG
from ottla.log.segment.file_slice import FileSlice
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import MAGIC_V2, Batch, CorruptBatch

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment.segment import Segment


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


def read(log: Log, offset: int, max_bytes: int, upto: int, at_least_one: bool) -> FileSlice | None:
    """See Log.read."""
    written_end = log.written_end
    if offset < log.log_start_offset or offset > written_end:
        raise out_of_range(log, offset)
    upto = min(upto, written_end)
    if offset >= upto:
        return None
    segment, recent = log.active_segment.segment, log.active_segment.recent
    if recent.covers(offset):
        end = segment.size if upto == written_end else recent.find(upto, segment.size)[0]
        position, batch_end = recent.find(offset, segment.size)
        if batch_end > end:
            return None
    else:
        found = _find(log, offset)
        if found is None:
            return None
        segment, batch = found
        position, batch_end = batch.position, batch.end
        end = _end_position(log, segment, upto)
        if batch_end > end:
            return None
    length = min(end - position, max_bytes)
    if length < batch_end - position:
        if not at_least_one:
            return None
        length = batch_end - position
    return FileSlice(log.resources.pool.file(segment), position, length)


def bytes_available(log: Log, offset: int, upto: int) -> int:
    """See Log.bytes_available."""
    upto = min(upto, log.written_end)
    if offset >= upto:
        return 0
    recent, size = log.recent, log.active.size
    if recent.covers(offset):
        end = size if upto == log.written_end else recent.find(upto, size)[0]
        return max(end - recent.find(offset, size)[0], 0)
    found = _find(log, offset)
    if found is None:
        return 0
    first, batch = found
    last = log.segments.at(upto - 1)
    if first is last:
        return max(_end_position(log, last, upto) - batch.position, 0)
    inner = sum(segment.size for segment in log.segments.between(first, last))
    return first.size - batch.position + inner + _end_position(log, last, upto)


def offset_for_timestamp(log: Log, timestamp_ms: int) -> TimestampOffset | None:
    """See Log.offset_for_timestamp."""
    for segment in log.segments.from_offset(log.log_start_offset):
        if segment.max_timestamp >= timestamp_ms:
            try:
                found = _first_at(segment, timestamp_ms, log.log_start_offset)
            except CorruptBatch as error:
                raise _damaged(segment, error) from None
            if found is not None:
                return found
    return None


def _first_at(segment: Segment, timestamp_ms: int, start: int) -> TimestampOffset | None:
    """Return a segment's first record, from an offset on, with this timestamp or a later one."""
    after = max(segment.time_index.lookup(timestamp_ms)[1], start)
    for batch in segment.batches_from(segment.offset_index.lookup(after)[1]):
        if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start:
            found = _record_at(segment, batch, timestamp_ms, start)
            if found is not None:
                return found
    return None


def max_timestamp(log: Log) -> TimestampOffset | None:
    """See Log.max_timestamp."""
    segment = max(log.segments, key=lambda segment: segment.max_timestamp)
    timestamp = segment.max_timestamp
    if timestamp < 0:
        return None
    try:
        batch = segment.locate(segment.max_timestamp_offset)
        if batch is None:
            return None
        return _record_at(segment, batch, timestamp, log.log_start_offset)
    except CorruptBatch as error:
        raise _damaged(segment, error) from None


def out_of_range(log: Log, offset: int) -> ApiError:
    return ApiError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{log.topic_partition} has offsets {log.log_start_offset} to {log.written_end},"
        f" not {offset}",
    )


def _find(log: Log, offset: int) -> tuple[Segment, Batch] | None:
    """Return the first written batch that ends at or after an offset, and its segment."""
    for segment in log.segments.from_offset(offset):
        if segment.size:
            batch = _locate(segment, offset)
            if batch is not None:
                return segment, batch
    return None


def _locate(segment: Segment, offset: int) -> Batch | None:
    try:
        return segment.locate(offset)
    except CorruptBatch as error:
        raise _damaged(segment, error) from None


def _damaged(segment: Segment, error: CorruptBatch) -> ApiError:
    message = f"{segment.path(LOG)} is damaged {error}"
    return ApiError(ErrorCode.CORRUPT_MESSAGE, message)


def _end_position(log: Log, segment: Segment, upto: int) -> int:
    """Return the position in a segment where the batches that end before `upto` end."""
    if upto >= log.written_end:
        return segment.size
    following = log.segments.end_of(segment)
    if following is None:
        if log.recent.covers(upto):
            return log.recent.find(upto, segment.size)[0]
    elif upto >= following:
        return segment.size
    batch = _locate(segment, upto)
    return segment.size if batch is None else batch.position


def _record_at(
    segment: Segment, batch: Batch, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """Return a batch's first record, from an offset on, with this timestamp or a later one."""
    from ottla.records.record import records_of

    if batch.magic != MAGIC_V2:
        return TimestampOffset(batch.base_offset, batch.max_timestamp, -1)
    for record in records_of(segment.read_batch(batch)):
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            epoch = batch.partition_leader_epoch
            return TimestampOffset(record.offset, record.timestamp, epoch)
    return None
