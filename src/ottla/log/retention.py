"""Decide which segments are old enough to be deleted, and delete them.

A segment is deleted for one of Kafka's three reasons: the log start offset is past it; the log
is larger than retention.bytes even without it; its largest timestamp (or its modification time
if it has none) is older than retention.ms. The last two apply only to topics with
cleanup.policy delete. Deletion begins with the oldest segment and stops at the first one to
keep. Nothing at or past the high watermark is deleted, and the active segment only after a new
one was begun.

Of a tiered topic only what was copied is deleted. If everything before the active segment was
copied and the active segment is to be deleted too, a new one is begun, so that it is copied. The
next round deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ottla.log.file_names import LOG
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.log.truncation import discard_segments

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment.segment import Segment


def delete_old_segments(log: Log, now_ms: int, at_most: int) -> int:
    """See Log.delete_old_segments."""
    count = _delete(log, _before_log_start(log, at_most), now_ms)
    config = log.config
    if config.remote_storage_enable:
        most_bytes, most_ms = config.kept_local_bytes, config.kept_local_ms
    elif "delete" in config.cleanup_policy:
        most_bytes, most_ms = config.retention_bytes, config.retention_ms
    else:
        return count
    count += _delete(log, _too_large(log, at_most - count, most_bytes), now_ms)
    count += _delete(log, _too_old(log, at_most - count, now_ms, most_ms), now_ms)
    return count


def _before_log_start(log: Log, at_most: int) -> int:
    if log.log_start_offset == log.segments.base_offsets[0]:
        return 0  # nearly always
    count = 0
    for segment, end_offset in islice(_candidates(log), at_most):
        if segment is log.active or end_offset > log.log_start_offset:
            break
        count += 1
    return count


def _too_large(log: Log, at_most: int, most_bytes: int) -> int:
    if most_bytes < 0:
        return 0
    count, excess = 0, log.size - most_bytes
    if excess < 0:
        return 0
    for segment, _ in islice(_expendable(log), at_most):
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


def _too_old(log: Log, at_most: int, now_ms: int, retention_ms: int) -> int:
    count = 0
    if retention_ms < 0:
        return 0
    for segment, _ in islice(_expendable(log), at_most):
        try:
            if not segment.knows_max_timestamp:
                log.resources.index_jobs.open(segment)
        except IndexNotReady:
            break  # the next round knows how old it is
        if now_ms - segment.largest_timestamp() <= retention_ms:
            break
        count += 1
    return count


def _expendable(log: Log) -> Iterator[tuple[Segment, int]]:
    """Yield the segments that retention may delete: of a tiered topic, those that are copied.

    The active segment of such a topic comes after them, unless nothing ever deletes its records.
    """
    needs_copy = _needs_copies(log)
    for segment, end_offset in _candidates(log):
        if needs_copy and segment is log.active:
            if not log.config.deletes:
                return
        elif needs_copy and end_offset - 1 > log.highest_remote_offset:
            return
        yield segment, end_offset


def _needs_copies(log: Log) -> bool:
    """Return True if local segments are deleted only if they are copied.

    If copies are turned off, others go as well, unless the topic is compacted and nothing else.
    """
    config = log.config
    is_copied = not (config.remote_log_copy_disable and config.deletes)
    return config.remote_storage_enable and is_copied


def _candidates(log: Log) -> Iterator[tuple[Segment, int]]:
    """Yield the segments below the high watermark, oldest first, with the offset after each."""
    base_offsets = log.segments.base_offsets
    for number, segment in enumerate(log.segments):
        is_last = segment is log.active
        end_offset = log.log_end_offset if is_last else base_offsets[number + 1]
        if end_offset > log.high_watermark or (is_last and not segment.size):
            return
        yield segment, end_offset


def _delete(log: Log, count: int, now_ms: int) -> int:
    if not count:
        return 0
    if count == len(log.segments):
        log.roll(now_ms)
        is_copied = log.log_end_offset - 1 <= log.highest_remote_offset
        count -= _needs_copies(log) and not is_copied
    if not count:
        return 0
    start = log.segments.base_offsets[count]
    if not log.config.remote_storage_enable or start - 1 > log.highest_remote_offset:
        log.advance_log_start(start)
    old = log.segments.remove_oldest(count)
    discard_segments(log, old)
    log.flush_state.note_changed(*(segment.path(LOG) for segment in old))
    return count
