"""Find batches by offset and by timestamp.

Reads near the end of the log are answered from the recent batches in memory. Others find the
segment, then look into its offset index, then read batch headers for a few KiB. Only written
batches are found. While an index is rebuilt in the background, a read finds nothing and other
lookups raise IndexNotReady. DamagedLog is raised where a segment is damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.log.damage import DamagedLog
from ottla.log.file_names import LOG
from ottla.log.segment.batch_scan import check_crc
from ottla.log.segment.file_slice import FileSlice
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import MAGIC_V2, Batch, CorruptBatch

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.record_search import RecordSearch
    from ottla.log.segment.active_segment import RolledSegment
    from ottla.log.segment.recent_batches import RecentBatches
    from ottla.log.segment.segment import Segment


class OffsetTiered(Exception):
    """An offset is not on local disk any more, but in the remote tier."""


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
    known: RecentBatches | None = recent
    if recent.covers(offset):
        end = segment.size if upto == written_end else recent.find(upto, segment.size)[0]
        position, batch_end = recent.find(offset, segment.size)
        if batch_end > end:
            return None
    elif (rolled := _rolled_at(log, offset)) is not None:
        upto_next = upto >= segment.base_offset
        segment, known = rolled
        end = segment.size if upto_next else known.find(upto, segment.size)[0]
        position, batch_end = known.find(offset, segment.size)
        if batch_end > end:
            return None
    else:
        if offset < log.segments.base_offsets[0]:
            raise OffsetTiered
        known = None
        try:
            found = _find(log, offset)
            if found is None:
                return None
            segment, batch = found
            end = _end_position(log, segment, upto)
        except IndexNotReady:
            return None
        position, batch_end = batch.position, batch.end
        if batch_end > end:
            return None
    length = min(end - position, max_bytes)
    if length < batch_end - position:
        if not at_least_one:
            return None
        length = batch_end - position
    elif known is not None and position + length < end:
        length = known.boundary(position + length) - position  # a part of a batch is of no use
    return FileSlice(log.resources.pool.file(segment), position, length)


def _rolled_at(log: Log, offset: int) -> RolledSegment | None:
    """Return the segment before the active one if its newest batches in memory have an offset."""
    rolled = log.active_segment.rolled
    if (
        rolled is not None
        and offset < log.active_segment.segment.base_offset
        and rolled.recent.covers(offset)
        and log.segments.is_before_active(rolled.segment)  # the cleaner may have replaced it
    ):
        return rolled
    return None


def aborted_transactions(log: Log, offset: int, records: FileSlice, upto: int) -> bytearray:
    """See Log.aborted_transactions."""
    segments = log.segments.from_offset(offset)
    if not any(segment.has_aborted for segment in segments):
        return bytearray()
    upper = min(_upper_bound(log, segments, records), upto)
    return log.resources.index_jobs.collect_aborted(segments, offset, upper)


def _upper_bound(log: Log, segments: list[Segment], records: FileSlice) -> int:
    """Return an offset that lies after all batches of a slice, from memory or an index."""
    end, path = records.position + records.length, records.file.path
    segment = next(each for each in segments if each.path(LOG) == path)
    following = log.segments.end_of(segment)
    if following is None:
        bound = log.recent.offset_at(end)
        if bound is not None:
            return bound
    bound = segment.offset_index.offset_from(end)
    if bound is not None:
        return bound
    return log.written_end if following is None else following


def bytes_available(log: Log, offset: int, upto: int) -> int:
    """See Log.bytes_available."""
    upto = min(upto, log.written_end)
    if offset >= upto:
        return 0
    recent, size = log.recent, log.active.size
    if recent.covers(offset):
        end = size if upto == log.written_end else recent.find(upto, size)[0]
        return max(end - recent.find(offset, size)[0], 0)
    try:
        found = _find(log, offset)
        if found is None:
            return 0
        first, batch = found
        last = log.segments.at(upto - 1)
        if first is last:
            return max(_end_position(log, last, upto) - batch.position, 0)
        inner = sum(segment.size for segment in log.segments.between(first, last))
        return first.size - batch.position + inner + _end_position(log, last, upto)
    except IndexNotReady:
        return 0


def offset_for_timestamp(
    log: Log, timestamp_ms: int, search: RecordSearch
) -> TimestampOffset | None:
    """See Log.offset_for_timestamp."""
    segments = log.segments.from_offset(log.log_start_offset)
    log.resources.index_jobs.read_timestamps(segments)
    for segment in segments:
        if segment.max_timestamp >= timestamp_ms:
            found = _first_at(log, segment, timestamp_ms, search)
            if found is not None:
                return found
    return None


def _first_at(
    log: Log, segment: Segment, timestamp_ms: int, search: RecordSearch
) -> TimestampOffset | None:
    """Return a segment's first record, from the log start on, at this timestamp or later."""
    start, jobs = log.log_start_offset, log.resources.index_jobs
    first = jobs.locate(segment, max(jobs.offset_before(segment, timestamp_ms), start))
    if first is None:
        return None
    for batch in segment.batches_from(first.position):
        if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start:
            found = _record_at(segment, batch, timestamp_ms, start, search)
            if found is not None:
                return found
    return None


def max_timestamp(log: Log, search: RecordSearch) -> TimestampOffset | None:
    """See Log.max_timestamp."""
    log.resources.index_jobs.read_timestamps(log.segments.from_offset(0))
    segment = max(log.segments, key=lambda segment: segment.max_timestamp)
    timestamp = segment.max_timestamp
    if timestamp < 0:
        return None
    batch = log.resources.index_jobs.locate(segment, segment.max_timestamp_offset)
    if batch is None:
        return None
    return _record_at(segment, batch, timestamp, log.log_start_offset, search)


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
            batch = log.resources.index_jobs.locate(segment, offset)
            if batch is not None:
                return segment, batch
    return None


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
    batch = log.resources.index_jobs.locate(segment, upto)
    return segment.size if batch is None else batch.position


def _record_at(
    segment: Segment, batch: Batch, timestamp_ms: int, start_offset: int, search: RecordSearch
) -> TimestampOffset | None:
    """Return a batch's first record, from an offset on, with this timestamp or a later one."""
    if batch.magic != MAGIC_V2:
        return TimestampOffset(batch.base_offset, batch.max_timestamp, -1)
    try:
        found = search.find(segment, batch, timestamp_ms, start_offset)
    except CorruptBatch as error:
        raise _unreadable(segment, batch, error) from None
    return None if found is None else TimestampOffset(*found, batch.partition_leader_epoch)


def _unreadable(segment: Segment, batch: Batch, error: CorruptBatch) -> Exception:
    """Return what to raise for a batch whose records cannot be decoded.

    If its CRC is right, a client has sent it like this: then the log is not damaged.
    """
    try:
        check_crc(segment.read_batch(batch), batch, 0)
    except CorruptBatch as damage:
        return DamagedLog(segment.path(LOG), str(damage))
    return ApiError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{segment.path(LOG)}: the records of the batch at position {batch.position} cannot be"
        f" decoded: {error.reason}",
    )
