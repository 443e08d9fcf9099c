"""After a crash: check what was not forced to disk, and cut the log at the first bad batch.

From the recovery point on, the length, CRC and offsets of each batch are checked. The log is cut
before the first bad batch, and later segments are deleted. The indexes of what was checked are
rebuilt. In the segment that holds the recovery point, checking begins at an index entry before
it if the index is in order, so the work depends on the unflushed data only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.file_names import INDEX, LOG, TIME_INDEX
from ottla.log.segment.batch_scan import MAX_RELATIVE_OFFSET, checked_batches, header_at
from ottla.log.segment.index_rebuild import IndexBuilder
from ottla.log.segment.offset_index import OffsetIndex
from ottla.log.segment.segment import Segment
from ottla.log.segment.time_index import TimeIndex
from ottla.log.startup.metadata_damage import check_end_of_metadata
from ottla.log.truncation import discard_segments
from ottla.model.ids import METADATA_TOPIC
from ottla.records.batch import CorruptBatch

if TYPE_CHECKING:
    from ottla.log.log import Log

COPIED_BYTES = 1024 * 1024


def recover(log: Log, recovery_point: int, notes: list[str]) -> None:
    """Check all segments from the recovery point on; report in `notes` what was cut."""
    number, base_offsets = log.segments.number_at(recovery_point), log.segments.base_offsets
    if number and base_offsets[number] == recovery_point:
        number -= 1  # its batches are on disk, but perhaps not the cut of its file
    while number < len(log.segments):
        segment = log.segments[number]
        number += 1
        end_offset, problem = recover_segment(log, segment, recovery_point)
        if problem is None and end_offset >= recovery_point:
            problem = _hole(log, end_offset, number)
        if problem is not None:
            notes.append(f"{segment.path(LOG)}: {problem}; cut to {segment.size} bytes")
            if number < len(log.segments) and end_offset < base_offsets[number]:
                _drop_following(log, number, notes)


def recover_segment(log: Log, segment: Segment, recovery_point: int) -> tuple[int, str | None]:
    """Check a segment and cut it at the first damage; return its end offset and the damage."""
    start = _resume(segment, recovery_point) if recovery_point > segment.base_offset else 0
    if not start:
        segment.set_empty_indexes()
    builder = IndexBuilder.resume(segment, log.config.index_interval_bytes)
    valid, next_offset, problem = start, segment.base_offset, None
    capacity, last_allowed = log.config.segment_index_bytes, _last_allowed(log, segment)
    try:
        for batch in checked_batches(segment.file, start, segment.size):
            if batch.base_offset < next_offset:
                raise CorruptBatch(valid, f"offset {batch.base_offset} after {next_offset - 1}")
            if batch.last_offset > last_allowed:
                raise CorruptBatch(valid, f"offset {batch.last_offset} is not the segment's")
            builder.add(batch, capacity)
            if batch.partition_leader_epoch > log.leader_epochs.latest_epoch:
                log.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            valid, next_offset = batch.end, batch.next_offset
    except CorruptBatch as error:
        if start and valid == start:  # no batch is good: the index is wrong
            return recover_segment(log, segment, segment.base_offset)
        problem = f"bad batch {error}"
    if valid < segment.size:
        problem = problem or f"the batch at position {valid} is incomplete"
        if log.topic_partition.topic == METADATA_TOPIC:
            check_end_of_metadata(segment, valid, next_offset, recovery_point, problem)
        segment.cut_for_good(valid)
    segment.set_max_timestamp(builder.max_timestamp, builder.offset)
    log.flush_state.note_changed(*segment.finish())
    # Later transactions are added again with their markers, by `rebuild_producers`.
    segment.txn_index.truncate_to(max(min(next_offset, recovery_point), 0))
    return next_offset, problem


def write_again(log: Log, offset: int) -> None:
    """Write the batches from an offset on once more, unchanged.

    The last process may have ended because a sync failed. The bytes can be read, but the kernel
    counts them as written: only another write makes a later sync write them.
    """
    for segment in log.segments.from_offset(offset):
        first = segment.locate(offset)
        position = segment.size if first is None else first.position
        file = segment.pool.open(segment.path(LOG), writable=True)
        while position < segment.size:
            content = file.pread(min(segment.size - position, COPIED_BYTES), position)
            file.pwritev([content], position)
            position += len(content)


def _last_allowed(log: Log, segment: Segment) -> int:
    """Return the largest offset that may be in a segment."""
    last, following = segment.base_offset + MAX_RELATIVE_OFFSET, log.segments.end_of(segment)
    return last if following is None else min(last, following - 1)


def _hole(log: Log, end_offset: int, following: int) -> str | None:
    """Return what is missing before the next segment, unless compaction may have removed it.

    A power failure can remove the end of a segment and leave the next one. A log must be a
    prefix of what was written, so the next one is deleted.
    """
    if log.config.compacts or following >= len(log.segments):
        return None
    next_base = log.segments.base_offsets[following]
    if end_offset >= next_base or next_base <= log.cleaned_upto:
        return None
    return f"offsets {end_offset} to {next_base - 1} are missing"


def _resume(segment: Segment, recovery_point: int) -> int:
    """Keep the index entries before the recovery point; return the position to check from."""
    pool, base_offset = segment.pool, segment.base_offset
    offset_path, time_path = segment.path(INDEX), segment.path(TIME_INDEX)
    try:
        entries = OffsetIndex.valid_entries(pool.files, offset_path, base_offset, recovery_point)
        times = TimeIndex.valid_entries(pool.files, time_path, base_offset, recovery_point)
    except FileNotFoundError:
        return 0
    if not entries:
        return 0
    index = OffsetIndex(pool, offset_path, base_offset, entries)
    offset, position = index.last()
    pool.discard_map(index)
    if position >= segment.size:
        return 0
    try:
        header = header_at(segment.file.pread(128, position), 0, position)
    except CorruptBatch:
        return 0
    if header is None or header.last_offset > offset:
        return 0
    segment.adopt_indexes(entries, times)
    return position


def _drop_following(log: Log, number: int, notes: list[str]) -> None:
    following = log.segments.remove_after(number - 1)
    if not following:
        return
    notes.append(
        f"{log.directory}: deleted all {len(following)} segments after the damage,"
        f" from offset {following[0].base_offset} on"
    )
    discard_segments(log, following)
    log.resources.files.sync_dir(log.directory)  # they must not come back beside new segments
