"""Opening and creating the log of a partition.

After a clean shutdown only the directory, the small files and the tail of the active segment
are read; whatever the size of the log. Otherwise everything from the recovery point on is
checked first. What a stranger should know about (cuts, rebuilt state) goes into `notes`.
"""

from __future__ import annotations

from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.checkpoints import CorruptCheckpoint
from ottla.log.epochs import EpochCache
from ottla.log.leftovers import clear_leftovers
from ottla.log.log import Log
from ottla.log.names import (
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    offset_name,
    offset_of,
)
from ottla.log.partition_metadata import read_topic_id, write_topic_id
from ottla.log.recovery import recover, write_again
from ottla.log.replay import replay
from ottla.log.resources import Resources
from ottla.log.segment import Segment
from ottla.log.snapshot import CorruptSnapshot, decode_snapshot
from ottla.log.truncation import discard_segments, discard_snapshots
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.ports import read_file
from ottla.records.batch import CorruptBatch

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig


class Checkpoint(NamedTuple):
    """What the checkpoints of a log directory say about one log."""

    is_clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0


def create_log(
    resources: Resources,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: bytes,
    config: LogConfig,
) -> Log:
    """Make the directory and the first segment of a new, empty log."""
    resources.files.make_dirs(directory)
    log = Log(resources, directory, topic_partition, topic_id, config)
    log.is_new = True
    if topic_id != ZERO_UUID:
        path = log.path(PARTITION_METADATA)
        write_topic_id(resources.files, path, topic_id)
        log.unsynced.append(path)
    _begin(log, 0)
    return log


def open_log(
    resources: Resources,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    checkpoint: Checkpoint,
    notes: list[str],
) -> Log:
    """Open an existing log, recovering it unless it was closed cleanly."""
    names = clear_leftovers(resources, directory, notes)
    topic_id = read_topic_id(resources.files, f"{directory}/{PARTITION_METADATA}", notes)
    log = Log(resources, directory, topic_partition, topic_id, config)
    _read_epochs(log, notes)
    for name, size in sorted(names.items()):
        offset = offset_of(name)
        if offset is None:
            continue
        if name.endswith(LOG):
            log.add_segment(Segment(resources.pool, directory, offset, size))
        elif name.endswith(SNAPSHOT):
            log.snapshots.append(offset)
    if not checkpoint.is_clean:
        _doubt_files(log, checkpoint.recovery_point)
    if log.segments and not checkpoint.is_clean:
        recover(log, checkpoint.recovery_point, notes)
    end_offset = _find_end(log, notes)
    if checkpoint.is_clean and not end_offset:
        _doubt_files(log, 0)  # one that never held anything is closed without a flush
    if not log.segments or end_offset < checkpoint.log_start_offset:
        _begin_again(log, checkpoint.log_start_offset, notes)
    else:
        log.log_end_offset = log.written_end = end_offset
        log.log_start_offset = max(checkpoint.log_start_offset, log.base_offsets[0])
        log.activate(log.segments[-1], resources.clock.wall_ms())
    log.recovery_point = min(checkpoint.recovery_point, log.written_end)
    if checkpoint.is_clean:
        log.recovery_point = log.written_end
    log.high_watermark = max(min(checkpoint.high_watermark, log.written_end), log.log_start_offset)
    log.leader_epochs.truncate_from_end(log.written_end)
    log.leader_epochs.truncate_from_start(log.log_start_offset)
    rebuild_producers(log, notes, is_clean=checkpoint.is_clean)
    if log.written_end - log.recovery_point >= config.flush_messages:
        _force_recovered(log, notes)
    return log


def _force_recovered(log: Log, notes: list[str]) -> None:
    """Batches that were written but not forced before the crash are served from now on."""
    try:
        write_again(log, log.recovery_point)
        log.flush()
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT):
            raise
        notes.append(f"{log.directory}: cannot be flushed: {error}")


def _doubt_files(log: Log, recovery_point: int) -> None:
    """The process that was killed may have made and cut files without syncing that.

    Segments from the recovery point on are flushed anyway; the one that ends there may have
    been trimmed since.
    """
    log.is_new = True
    log.unsynced.append(log.path(PARTITION_METADATA))
    log.unsynced += [log.path(offset_name(offset, SNAPSHOT)) for offset in log.snapshots]
    if recovery_point and log.segments:
        segment = log.segments[log.segment_index(recovery_point - 1)]
        log.unsynced += [segment.path(suffix) for suffix in (LOG, INDEX, TIME_INDEX)]


def rebuild_producers(log: Log, notes: list[str], *, is_clean: bool) -> None:
    """Producer state as of the log end: the newest good snapshot, then the batches after it."""
    log.producers.clear()
    discard_snapshots(log, log.written_end + 1)
    _discard_stray_snapshots(log)
    start = log.written_end if is_clean else log.base_offsets[0]
    while log.snapshots:
        offset = log.snapshots[-1]
        try:
            content = read_file(log.resources.files, log.path(offset_name(offset, SNAPSHOT)))
            log.producers.load(decode_snapshot(content))
        except CorruptSnapshot as error:
            notes.append(f"{log.path(offset_name(offset, SNAPSHOT))}: {error}; removed")
            discard_snapshots(log, offset)
            start = log.base_offsets[0]  # state is missing, however clean the shutdown was
            continue
        start = offset
        break
    if start < log.written_end:
        replay(log, start, notes)


def _discard_stray_snapshots(log: Log) -> None:
    """Keep the snapshots at the beginning of segments, and the newest of all."""
    bases = set(log.base_offsets)
    for offset in log.snapshots[:-1]:
        if offset not in bases:
            log.snapshots.remove(offset)
            log.resources.files.unlink(log.path(offset_name(offset, SNAPSHOT)))


def _find_end(log: Log, notes: list[str]) -> int:
    """The offset after the last batch; a damaged tail is cut even after a clean shutdown."""
    if not log.segments:
        return 0
    segment = log.segments[-1]
    try:
        return _scan_tail(segment)
    except CorruptBatch:
        recover(log, segment.base_offset, notes)
        return _scan_tail(segment)


def _scan_tail(segment: Segment) -> int:
    if not segment.size:
        segment.set_max_timestamp(-1, segment.base_offset)
        return segment.base_offset
    end_offset, position = segment.base_offset, 0
    timestamp, timestamp_offset = segment.time_index.last()
    for batch in segment.batches_from(segment.offset_index.last()[1]):
        end_offset, position = batch.next_offset, batch.end
        if batch.max_timestamp > timestamp:
            timestamp, timestamp_offset = batch.max_timestamp, batch.last_offset
    if position != segment.size:
        raise CorruptBatch(position, "the last batch is incomplete")
    segment.set_max_timestamp(timestamp, timestamp_offset)
    segment.drop_handles()
    return end_offset


def _read_epochs(log: Log, notes: list[str]) -> None:
    path = log.path(LEADER_EPOCHS)
    try:
        log.leader_epochs = EpochCache.decode(read_file(log.resources.files, path))
    except FileNotFoundError:
        return
    except CorruptCheckpoint as error:
        notes.append(f"{path}: {error}; leader epochs are read from unflushed batches only")


def _begin(log: Log, offset: int) -> None:
    segment = Segment(log.resources.pool, log.directory, offset, 0)
    preallocated = log.config.segment_bytes if log.config.preallocate else 0
    segment.create(log.config.segment_index_bytes, preallocated)
    log.add_segment(segment)
    log.activate(segment, log.resources.clock.wall_ms())
    log.unsynced.append(segment.path(LOG))


def _begin_again(log: Log, offset: int, notes: list[str]) -> None:
    """The log ends before its own start: segments were removed from outside."""
    if log.segments:
        notes.append(f"{log.directory}: all segments end before the log start offset {offset}")
        discard_segments(log, log.segments)
        discard_snapshots(log, 0)
        log.segments.clear()
        log.base_offsets.clear()
        log.leader_epochs.replace(())
    log.log_start_offset = log.log_end_offset = log.written_end = offset
    _begin(log, offset)
