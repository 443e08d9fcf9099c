"""Cutting a log back: to what a new leader has, or to nothing.

Segments that go are renamed and removed later; the one that is cut becomes the active one
again. Producer state is rebuilt from the last snapshot before the cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log import flushing
from ottla.log.names import DELETED, LOG, SEGMENT_SUFFIXES, SNAPSHOT, TXN_INDEX, offset_name
from ottla.log.segment import Segment
from ottla.log.txn_index import truncate_txn_index

if TYPE_CHECKING:
    from ottla.log.log import Log


def truncate_to(log: Log, offset: int) -> None:
    """See Log.truncate_to."""
    from ottla.log.loading import rebuild_producers

    log.discard_queued()
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return
    if offset < log.base_offsets[0]:
        truncate_fully(log, offset)
        return
    flushing.cancel(log)
    number = log.segment_index(offset)
    following = log.segments[number + 1 :]
    del log.segments[number + 1 :], log.base_offsets[number + 1 :]
    discard_segments(log, following)
    _cut_segment(log.segments[number], offset)
    log.activate(log.segments[number], log.resources.clock.wall_ms())
    log.recent.clear()
    _set_end(log, offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    log.leader_epochs.truncate_from_end(offset)
    _force(log)
    rebuild_producers(log, log.resources.notes, is_clean=False)


def truncate_fully(log: Log, new_start: int) -> None:
    """See Log.truncate_fully."""
    log.discard_queued()
    flushing.cancel(log)
    discard_segments(log, log.segments)
    discard_snapshots(log, 0)
    log.segments.clear()
    log.base_offsets.clear()
    segment = Segment(log.resources.pool, log.directory, new_start, 0)
    preallocated = log.config.segment_bytes if log.config.preallocate else 0
    segment.create(log.config.segment_index_bytes, preallocated)
    log.add_segment(segment)
    log.activate(segment, log.resources.clock.wall_ms())
    log.recent.clear()
    log.unsynced.append(segment.path(LOG))
    log.log_start_offset = new_start
    _set_end(log, new_start)
    log.high_watermark = new_start
    log.leader_epochs.replace(())
    log.producers.clear()
    _force(log)


def discard_segments(log: Log, segments: list[Segment]) -> None:
    """Rename the files of segments and have them removed after file.delete.delay.ms."""
    for segment in segments:
        segment.drop_handles()
        for suffix in SEGMENT_SUFFIXES:
            _discard(log, segment.path(suffix))
        if segment.base_offset in log.snapshots:
            log.snapshots.remove(segment.base_offset)
            _discard(log, segment.path(SNAPSHOT))


def _discard(log: Log, path: str) -> None:
    """Removing even a small file may wait for the disk: here it is renamed only."""
    try:
        log.resources.files.rename(path, path + DELETED)
    except FileNotFoundError:
        return
    due_ms = log.resources.clock.wall_ms() + log.config.file_delete_delay_ms
    log.resources.trash.add_file(path + DELETED, due_ms)


def discard_snapshots(log: Log, from_offset: int) -> None:
    """Remove the snapshots at or after an offset, for good: other batches may come there."""
    files, removed = log.resources.files, [o for o in log.snapshots if o >= from_offset]
    for offset in removed:
        log.snapshots.remove(offset)
        files.unlink(log.path(offset_name(offset, SNAPSHOT)))
    if removed:
        files.sync_dir(log.directory)


def _cut_segment(segment: Segment, offset: int) -> None:
    batch = segment.locate(offset)
    segment.offset_index.truncate_to(offset)
    segment.time_index.truncate_to(offset)
    truncate_txn_index(segment.pool.files, segment.path(TXN_INDEX), offset)
    segment.drop_handles()
    segment.is_active = True
    if batch is not None:
        segment.file.truncate(batch.position)
        segment.size = batch.position
    timestamp, timestamp_offset = segment.time_index.last()
    for later in segment.batches_from(segment.offset_index.last()[1]):
        if later.max_timestamp > timestamp:
            timestamp, timestamp_offset = later.max_timestamp, later.last_offset
    segment.set_max_timestamp(timestamp, timestamp_offset)


def _force(log: Log) -> None:
    """Make the cut durable before anything is written after it.

    Otherwise segments that were removed could come back beside what took their place.
    """
    log.active.file.sync()
    log.resources.files.sync_dir(log.directory)


def _set_end(log: Log, offset: int) -> None:
    log.log_end_offset = log.written_end = offset
    log.high_watermark = min(log.high_watermark, offset)
    log.recovery_point = min(log.recovery_point, offset)
