"""Cutting a log back: to what a new leader has, or to nothing.

Removed segments are renamed and deleted later; the one that is cut becomes the active one
again. Producer state is rebuilt from the last snapshot before the cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.log.file_names import DELETED, SEGMENT_SUFFIXES, SNAPSHOT
from ottla.log.segment.segment import Segment
from ottla.log.state.leader_epochs import EpochEntry
from ottla.log.state.producer_replay import rebuild_producers
from ottla.log.state.producer_table import ProducerTable

if TYPE_CHECKING:
    from ottla.log.log import Log


def truncate_to(log: Log, offset: int) -> None:
    """See Log.truncate_to."""
    log.discard_queued()
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return
    if offset < log.segments.base_offsets[0]:
        _truncate_into_tier(log, offset)
        return
    log.flush_state.cancel()
    number = log.segments.number_at(offset)
    log.truncations += number + 1 < len(log.segments)
    discard_segments(log, log.segments.remove_after(number))
    log.resources.index_jobs.cancel(log.segments.active)
    log.segments.active.truncate_to(offset)
    log.flush_state.truncate_to(offset)
    log.cleaned_upto = min(log.cleaned_upto, offset)
    _forget_copies(log, offset)
    log.begin(min(log.log_start_offset, offset), offset, min(log.high_watermark, offset))
    log.leader_epochs.truncate_from_end(offset)
    _force(log)
    rebuild_producers(log, log.resources.notes, is_clean=False)


def _truncate_into_tier(log: Log, offset: int) -> None:
    """Cut the log before its first local segment. What the remote tier has stays, if it has any."""
    epochs = log.leader_epochs.entries
    start = log.log_start_offset if log.config.remote_storage_enable else offset
    truncate_fully(log, offset, min(start, offset))
    if start < offset:
        log.leader_epochs.replace(epochs)
        log.leader_epochs.truncate_from_end(offset)


def truncate_fully(log: Log, new_start: int, log_start_offset: int | None = None) -> None:
    """See Log.truncate_fully."""
    log.discard_queued()
    log.flush_state.cancel()
    log.truncations += 1
    restart(log, new_start)
    log.flush_state.truncate_to(new_start)
    log.cleaned_upto = 0
    _forget_copies(log, new_start)
    log.begin(new_start if log_start_offset is None else log_start_offset, new_start, new_start)
    log.producers.clear()
    _force(log)


def begin_after_tier(
    log: Log,
    local_start: int,
    log_start_offset: int,
    epochs: tuple[EpochEntry, ...],
    producers: ProducerTable,
) -> None:
    """See Log.begin_after_tier."""
    truncate_fully(log, local_start, log_start_offset)
    log.leader_epochs.replace(tuple(e for e in epochs if e.start_offset < local_start))
    log.leader_epochs.truncate_from_start(log_start_offset)
    log.producers.load(producers)
    log.write_snapshot()
    log.flush()


def _forget_copies(log: Log, offset: int) -> None:
    """Note that what comes at an offset is not what the remote tier may have there."""
    log.highest_remote_offset = min(log.highest_remote_offset, offset - 1)
    log.remote_clean_offset = min(log.remote_clean_offset, offset)


def restart(log: Log, offset: int) -> None:
    """Replace all segments by an empty one at an offset, and forget snapshots and epochs."""
    discard_segments(log, log.segments)
    log.snapshots.remove_from(0)
    log.segments.replace_all(log.create_segment(offset))
    log.leader_epochs.replace(())


def discard_segments(log: Log, segments: Iterable[Segment]) -> None:
    """Rename the files of segments and delete them after file.delete.delay.ms."""
    for segment in segments:
        discard_segment_files(log, segment)
        if log.snapshots.forget(segment.base_offset):
            _discard(log, segment.path(SNAPSHOT))


def discard_segment_files(log: Log, segment: Segment) -> None:
    """Rename the files of a segment as `discard_segments` does, but not its snapshot."""
    log.resources.index_jobs.cancel(segment)
    segment.drop_handles()
    for suffix in SEGMENT_SUFFIXES:
        _discard(log, segment.path(suffix))


def _discard(log: Log, path: str) -> None:
    """Rename a file for later deletion: even deleting a small file may wait for the disk."""
    try:
        log.resources.files.rename(path, path + DELETED)
    except FileNotFoundError:
        return
    due_ms = log.resources.clock.wall_ms() + log.config.file_delete_delay_ms
    log.resources.trash.add_file(path + DELETED, due_ms)


def _force(log: Log) -> None:
    """Make the cut durable before anything is written after it.

    Otherwise segments that were removed could come back beside what took their place.
    """
    log.active.file.sync()
    log.resources.files.sync_dir(log.directory)
