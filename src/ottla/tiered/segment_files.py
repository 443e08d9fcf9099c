"""Which segment of a log is copied next, and what belongs to it."""

from __future__ import annotations

from ottla.log.cleaner.cleanable import first_dirty_offset
from ottla.log.file_names import INDEX as INDEX_FILE
from ottla.log.file_names import LEADER_EPOCHS as _EPOCHS_FILE
from ottla.log.file_names import TIME_INDEX as TIME_INDEX_FILE
from ottla.log.log import Log
from ottla.log.segment.segment import Segment
from ottla.log.state.leader_epochs import EpochCache, EpochEntry
from ottla.ports import Buffer, File, FileRange
from ottla.tiered.layout import INDEX, LEADER_EPOCHS, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from ottla.tiered.metadata_records import UNKNOWN, RemotePartition, SegmentMetadata

assert LEADER_EPOCHS == _EPOCHS_FILE


def next_to_copy(log: Log, highest_remote_offset: int) -> tuple[Segment, int] | None:
    """Return the first segment that has something to copy, and the offset after it.

    Only closed segments are copied whose records are committed and whose transactions are
    decided: what is copied never changes. Those of a compacted topic are copied when they are
    clean: what the cleaner removes soon need not be stored.
    """
    start = max(highest_remote_offset + 1, log.local_log_start_offset)
    stable = min(log.high_watermark, log.last_stable_offset)
    if start >= log.active.base_offset:
        return None
    if log.config.compacts:
        stable = min(stable, first_dirty_offset(log))
    number = log.segments.number_at(start)
    segment, end_offset = log.segments[number], log.segments.base_offsets[number + 1]
    return (segment, end_offset) if end_offset <= stable else None


def describe_segment(
    log: Log,
    segment: Segment,
    end_offset: int,
    *,
    segment_id: bytes,
    broker_id: int,
    now_ms: int,
) -> SegmentMetadata:
    """Return the metadata of a segment to copy. Its indexes must be open."""
    topic_partition = log.topic_partition
    return SegmentMetadata(
        RemotePartition(topic_partition.topic, log.topic_id, topic_partition.partition),
        segment_id,
        segment.base_offset,
        end_offset - 1,
        segment.max_timestamp,
        broker_id,
        now_ms,
        epochs_between(log, segment.base_offset, end_offset),
        segment.size,
        has_aborted=bool(segment.has_aborted and segment.txn_index.entries),
        clean_upto=first_dirty_offset(log) if log.config.compacts else UNKNOWN,
    )


def objects_of(log: Log, segment: Segment, end_offset: int) -> dict[str, Buffer | FileRange]:
    """Return the content of a segment's objects, by kind. Its indexes must be open.

    The snapshot has the state of producers at the end of the segment; it may be missing.
    """
    offsets, times = segment.offset_index, segment.time_index
    files = log.resources.files
    found: dict[str, Buffer | FileRange] = {
        LOG: FileRange(segment.file, 0, segment.size),
        INDEX: _head(files.open(segment.path(INDEX_FILE)), offsets.entries * offsets.ENTRY_SIZE),
        TIME_INDEX: _head(
            files.open(segment.path(TIME_INDEX_FILE)), times.entries * times.ENTRY_SIZE
        ),
    }
    if end_offset in log.snapshots.offsets:
        file = files.open(log.snapshots.path(end_offset))
        found[SNAPSHOT] = FileRange(file, 0, file.size())
    if segment.has_aborted and segment.txn_index.entries:
        found[TXN_INDEX] = bytes(segment.txn_index.entries)
    found[LEADER_EPOCHS] = encode_epochs(log, end_offset)
    return found


def epochs_between(log: Log, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
    """Return the leader epochs of a part of a log; none if the log begins after it.

    The first one begins with the part, or with the log if that begins later.
    """
    epochs = EpochCache(log.leader_epochs.entries)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    return epochs.entries


def encode_epochs(log: Log, end_offset: int) -> bytes:
    """Return a checkpoint with the leader epochs of a log up to an offset."""
    epochs = EpochCache(log.leader_epochs.entries)
    epochs.truncate_from_end(end_offset)
    return epochs.encode()


def _head(file: File, length: int) -> FileRange:
    return FileRange(file, 0, length)
