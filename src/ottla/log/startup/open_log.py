"""Open or create the log of a partition.

After a clean shutdown only the directory, the small files and the end of the active segment are
read, however large the log is. Otherwise everything from the recovery point on is checked
first. `notes` gets messages for the operator (what was cut, what was rebuilt).
"""

from __future__ import annotations

from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING

from ottla.log.damage import DamagedLog
from ottla.log.file_names import (
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
    offset_of,
)
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.segment.segment import Segment
from ottla.log.startup.leftover_files import clear_leftovers
from ottla.log.state.producer_replay import rebuild_producers
from ottla.log.store.partition_metadata import read_topic_id, write_topic_id
from ottla.log.truncation import restart
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID, TopicPartition
from ottla.model.value import Value
from ottla.ports import read_file

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig


class Checkpoint(Value):
    """What the checkpoints of a log directory say about one log."""

    is_clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_upto: int = 0


def create_log(
    resources: Resources,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: bytes,
    config: LogConfig,
) -> Log:
    """Create the directory and the first segment of a new log."""
    resources.files.make_dirs(directory)
    log = Log(resources, directory, topic_partition, topic_id, config)
    log.flush_state.note_new_directory()
    if topic_id != ZERO_UUID:
        path = log.path(PARTITION_METADATA)
        write_topic_id(resources.files, path, topic_id)
        log.flush_state.note_changed(path)
    log.segments.add(log.create_segment(0))
    log.begin(0, 0, 0)
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
    log.cleaned_upto = checkpoint.cleaned_upto
    _read_epochs(log, notes)
    _add_files(log, names)
    if not checkpoint.is_clean:
        _doubt_files(log, checkpoint.recovery_point)
    recovered_from = None
    if log.segments and not checkpoint.is_clean:
        recovered_from = checkpoint.recovery_point
        from ottla.log.startup.crash_recovery import recover  # seldom needed

        recover(log, recovered_from, notes)
    end_offset, damaged_from = _find_end(log, notes, is_clean=checkpoint.is_clean)
    if damaged_from is not None:
        recovered_from = min(damaged_from, recovered_from or damaged_from)
    if checkpoint.is_clean and not end_offset:
        _doubt_files(log, 0)  # a log that never held anything is closed without a flush
    _begin(log, checkpoint, end_offset, notes)
    log.leader_epochs.truncate_from_end(log.written_end)
    start = log.log_start_offset
    if checkpoint.log_start_offset < start:
        log.note_tiered_start(checkpoint.log_start_offset)
        start = checkpoint.log_start_offset  # a tiered log needs the epochs of its remote part
    log.leader_epochs.truncate_from_start(start)
    if recovered_from is not None:
        recovered_from = max(recovered_from, log.segments.base_offsets[0])
    rebuild_producers(log, notes, is_clean=recovered_from is None, newest=recovered_from)
    if log.active.has_aborted:
        _ = log.active.txn_index.entries  # read now: the next abort adds to them
    if log.written_end >= log.flush_state.due_offset:
        _force_recovered(log, notes)
    return log


def _add_files(log: Log, names: dict[str, int]) -> None:
    """Add the segments and snapshots of a directory to the log."""
    for name, size in sorted(names.items()):
        offset = offset_of(name)
        if offset is None:
            continue
        if name.endswith(LOG):
            segment = Segment(log.resources.pool, log.directory, offset, size)
            segment.has_aborted = offset_name(offset, TXN_INDEX) in names
            log.segments.add(segment)
        elif name.endswith(SNAPSHOT):
            log.snapshots.add(offset)


def _begin(log: Log, checkpoint: Checkpoint, end_offset: int, notes: list[str]) -> None:
    """Set the offsets of the log, with a new segment if none reaches its start."""
    start_offset = checkpoint.log_start_offset
    if not log.segments:
        log.segments.add(log.create_segment(start_offset))
    elif end_offset < start_offset:  # somebody else has removed segments
        notes.append(
            f"{log.directory}: all segments end before the log start offset {start_offset}"
        )
        restart(log, start_offset)
    end_offset = max(end_offset, start_offset)
    if not log.config.remote_storage_enable:  # else the remote tier has what comes before
        start_offset = max(start_offset, log.segments.base_offsets[0])
    recovery_point = end_offset if checkpoint.is_clean else checkpoint.recovery_point
    log.flush_state.set_recovery_point(min(recovery_point, end_offset))
    high_watermark = max(min(checkpoint.high_watermark, end_offset), start_offset)
    log.begin(start_offset, end_offset, high_watermark)


def _force_recovered(log: Log, notes: list[str]) -> None:
    """Force batches to disk that were written but not forced before the crash."""
    try:
        from ottla.log.startup.crash_recovery import write_again

        write_again(log, log.recovery_point)
        log.flush()
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT):
            raise
        notes.append(f"{log.directory}: cannot be flushed: {error}")


def _doubt_files(log: Log, recovery_point: int) -> None:
    """Flush files again that a killed process may have created or cut without a sync.

    Segments from the recovery point on are flushed anyway; the one that ends there may have
    been trimmed since.
    """
    changed = log.flush_state.note_changed
    log.flush_state.note_new_directory()
    changed(log.path(PARTITION_METADATA))
    changed(*map(log.snapshots.path, log.snapshots.offsets))
    if recovery_point and log.segments:
        segment = log.segments.at(recovery_point - 1)
        changed(*(segment.path(suffix) for suffix in (LOG, INDEX, TIME_INDEX)))


def _find_end(log: Log, notes: list[str], *, is_clean: bool) -> tuple[int, int | None]:
    """Return the offset after the last batch; cut a damaged end even after a clean shutdown.

    Also returns from where on the log was recovered then, None if it was not damaged.
    """
    if not log.segments:
        return 0, None
    segment = log.segments[-1]
    try:
        return _scan_tail(segment), None
    except DamagedLog as error:
        if is_clean and log.topic_partition.topic == METADATA_TOPIC:
            raise DamagedLog(
                segment.path(LOG),
                f"after a clean stop ({error}). Restore {log.directory} from a copy",
            ) from None
        damaged_from = segment.base_offset
        from ottla.log.startup.crash_recovery import recover

        recover(log, damaged_from, notes)
        segment = log.segments[-1]  # another one, if the damaged one was removed
        segment.rebuild_indexes()
        return _scan_tail(segment), damaged_from


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
        raise DamagedLog(segment.path(LOG), f"at position {position}: no batch begins there")
    segment.set_max_timestamp(timestamp, timestamp_offset)
    segment.drop_handles()
    return end_offset


def _read_epochs(log: Log, notes: list[str]) -> None:
    path = log.path(LEADER_EPOCHS)
    try:
        log.leader_epochs.load(read_file(log.resources.files, path))
    except FileNotFoundError:
        return
    except ValueError as error:
        notes.append(f"{path}: {error}; leader epochs are read from unflushed batches only")
