"""The log of one partition: appends by group commit, reads by file slices.

A leader's append validates a batch where it lies, gives it its offset and queues its bytes;
`commit` writes everything queued with one call, and only then is it readable. Between the
two the buffers given to `append` must stay as they are.

Invariants:
    log_start_offset <= high_watermark <= committed_end <= log_end_offset
    recovery_point <= committed_end: everything below it was forced to disk
    segments are sorted, never empty; the last one is the active one
    a commit holds as a whole or not at all: if it fails, everything appended since the last
    one is taken back, in the file, in producer state and in epochs

An append that needs a new segment writes what is queued first. If that fails, the error
stays pending: `append` raises it until `commit` has told it to the caller as well, because
the callers of the lost appends are waiting for that commit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from errno import EDQUOT, ENOSPC
from struct import Struct
from typing import TYPE_CHECKING

from ottla.log import flushing, reading, retention, truncation
from ottla.log.epochs import EpochCache, EpochEntry
from ottla.log.names import INDEX, LOG, SNAPSHOT, TIME_INDEX, offset_name
from ottla.log.offset_index import MAX_RELATIVE_OFFSET
from ottla.log.producers import SEQUENCE_MASK, ProducerStates
from ottla.log.recent import LIMIT, RecentBatches
from ottla.log.resources import Resources
from ottla.log.segment import ALLOCATE_FROM_BYTES, Segment
from ottla.log.slice import FileSlice
from ottla.log.snapshot import encode_snapshot
from ottla.log.validate import AppendRules
from ottla.model.ids import NO_TIMESTAMP, TopicPartition
from ottla.ports import File
from ottla.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2
from ottla.records.checksum import crc32c

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig

ALL_SEGMENTS = 2**31
MOST_AHEAD_BYTES = 16 * 1024 * 1024

_ALWAYS = -(2**63)
_NO_GROUP = -1
_unpack_header = HEADER.unpack_from
_assign_offset = Struct(">qii").pack_into


class Log:
    """The batches of one partition on this broker."""

    __slots__ = (
        "_allocated_end",
        "_failure",
        "_first",
        "_group_start",
        "_idle_end",
        "_jitter_ms",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_newest_timestamp",
        "_now_ms",
        "_old_epochs",
        "_oldest_timestamp",
        "_pending",
        "_pending_index",
        "_position",
        "_roll_offset",
        "_roll_size",
        "_roll_timestamp",
        "_rules",
        "_since_index",
        "active",
        "base_offsets",
        "committed_end",
        "config",
        "created_ms",
        "directory",
        "flush_job",
        "flushed_ms",
        "high_watermark",
        "is_new",
        "last_append_time",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "on_flush",
        "producers",
        "recent",
        "recovery_point",
        "resources",
        "segments",
        "snapshots",
        "topic_id",
        "topic_partition",
        "unsynced",
    )

    def __init__(
        self,
        resources: Resources,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
    ) -> None:
        self.resources = resources
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments: list[Segment] = []
        self.base_offsets: list[int] = []
        self.log_start_offset = self.log_end_offset = self.committed_end = 0
        self.high_watermark = self.recovery_point = 0
        self.last_append_time = NO_TIMESTAMP
        self.leader_epochs = EpochCache()
        self.producers = ProducerStates()
        self.recent = RecentBatches()
        self.snapshots: list[int] = []
        """Offsets of the producer snapshots on disk, rising."""
        self.flush_job: flushing.FlushJob | None = None
        self.on_flush: Callable[[OSError | None], None] | None = None
        """Called when flushes in the background are over, with the error if one failed.

        Without it errors go to `resources.on_error`.
        """
        self.flushed_ms = resources.clock.wall_ms()
        """When the log was last forced to disk, or opened."""
        self.is_new = False
        """Whether the directory itself was made and not forced to disk yet."""
        self.unsynced: list[str] = []
        """Files of which something is not forced to disk yet.

        New and trimmed ones, the names of the new, and that removed ones are gone.
        """
        self._failure: OSError | None = None
        self._first: int | None = None
        self._group_start = _NO_GROUP
        """Where the commit under way began, if a roll has written a part of it."""
        self._idle_end = -1
        self._pending: list[memoryview] = []
        self._pending_index: list[tuple[int, int, int, int]] = []
        self._old_epochs: tuple[EpochEntry, ...] | None = None
        self.reconfigure(config)

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.log_end_offset})"

    # Settings and segments

    def reconfigure(self, config: LogConfig) -> None:
        """Follow new settings from the next append on."""
        self.config = config
        self._rules = AppendRules(config)
        self._now_ms = -1
        self._roll_size = -1  # the next append looks at every roll rule

    def activate(self, segment: Segment, now_ms: int) -> None:
        """Append to this segment, the last one, from now on; it begins or goes on being active."""
        if not segment.is_active:
            self.resources.pool.discard_file(segment)  # it is open for reading only
            segment.is_active = True
        self.active = segment
        self.created_ms = now_ms
        self._position = segment.size
        self._allocated_end = max(ALLOCATE_FROM_BYTES, segment.size)
        self._since_index = 0
        self._max_timestamp = segment.max_timestamp
        self._max_timestamp_offset = segment.max_timestamp_offset
        self._roll_size = -1
        self._first = None
        jitter = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        self._jitter_ms = self.resources.random.below(jitter) if jitter else 0

    def add_segment(self, segment: Segment) -> None:
        """Put a segment behind the others."""
        self.segments.append(segment)
        self.base_offsets.append(segment.base_offset)

    def segment_index(self, offset: int) -> int:
        """The number of the segment whose range holds the offset; 0 for offsets before all."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    @property
    def size(self) -> int:
        """Bytes of all committed batches."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """Up to where a read_committed consumer may read."""
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    # Appending

    @property
    def uncommitted(self) -> bool:
        """Whether a commit has anything to do or to tell."""
        return bool(self._pending) or self._failure is not None

    def append(
        self,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        leader_epoch: int,
        now_ms: int,
        is_own: bool = False,
    ) -> int:
        """Queue the client's batch at [start, end) as leader; returns its base offset.

        A batch of the broker's own (`is_own`) has keys where the topic asks for them. A
        duplicate of one of its producer's last batches returns the original's offset and
        queues nothing. Raises ApiError if the batch is refused, OSError if a segment that is
        needed cannot be begun.
        """
        if self._failure is not None:
            raise self._failure
        if now_ms != self._now_ms:
            self._set_time(now_ms)
        size = end - start
        rules = self._rules
        if size < HEADER_SIZE:
            rules.prepare(buffer, view, start, end, now_ms)  # which refuses it
        (
            base_offset, batch_length, _, magic, crc, attributes, offset_delta, base_timestamp,
            max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
        ) = _unpack_header(buffer, start)  # fmt: skip
        if (
            magic != MAGIC_V2
            or batch_length != size - LOG_OVERHEAD
            or attributes not in (rules.own_attributes if is_own else rules.plain_attributes)
            or record_count != offset_delta + 1
            or record_count <= 0
            or base_offset != 0
            or size > rules.max_message_bytes
            or size > rules.segment_bytes
            or max_timestamp > self._newest_timestamp
            or base_timestamp < self._oldest_timestamp
            or producer_id >= 0 > base_sequence
            or producer_id >= 0 > producer_epoch
            or crc32c(view[start + 21 : end]) != crc
        ):
            buffer, view, start, end = rules.prepare(buffer, view, start, end, now_ms)
            size = end - start
            batch_length = size - LOG_OVERHEAD
            if rules.log_append_time:
                max_timestamp = now_ms
        self.last_append_time = now_ms if rules.log_append_time else NO_TIMESTAMP

        offset = self.log_end_offset
        last_offset = offset + offset_delta
        if producer_id >= 0:
            last_sequence = (base_sequence + offset_delta) & SEQUENCE_MASK
            duplicate = self.producers.check(
                producer_id, producer_epoch, base_sequence, last_sequence
            )
            if duplicate is not None:
                if rules.log_append_time:
                    self.last_append_time = duplicate.timestamp
                return duplicate.base_offset
        position = self._position
        if (
            position + size > self._roll_size
            or max_timestamp > self._roll_timestamp
            or last_offset > self._roll_offset
        ):
            position = self._make_room(size, max_timestamp, last_offset, now_ms)
        if producer_id >= 0:
            self.producers.append(
                producer_id, producer_epoch, base_sequence, last_sequence,
                offset, last_offset, max_timestamp,
            )  # fmt: skip
        if leader_epoch != self.leader_epochs.latest_epoch:
            self._begin_epoch(leader_epoch, offset)
        _assign_offset(buffer, start, offset, batch_length, leader_epoch)
        self._pending.append(view[start:end])
        recent = self.recent
        recent.offsets.append(offset)
        recent.positions.append(position)
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._since_index > self.config.index_interval_bytes:
            self._index(last_offset, position)
        self._since_index += size
        self._position = position + size
        self.log_end_offset = last_offset + 1
        return offset

    def commit(self) -> None:
        """Write all that is queued and make it readable.

        On OSError everything since the last commit is undone, what a roll in between has
        written included.
        """
        start = self._group_start
        self._group_start = _NO_GROUP
        if self._pending:
            if start == _NO_GROUP:
                start = self.committed_end
        elif self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        elif start == _NO_GROUP:
            return
        try:
            if self._pending:
                self._write_queued()
            if self.committed_end - self.recovery_point >= self.config.flush_messages:
                self.flush()
        except OSError:
            self._undo_to(start)
            raise

    def _write_queued(self) -> None:
        """Write what is queued with one call, then its index entries; it is readable then."""
        segment, pending = self.active, self._pending
        file = self.resources.pool.file(segment)
        if self._position > self._allocated_end:
            self._allocate(file)
        file.pwritev(pending, segment.size)
        segment.size = self._position
        segment.set_max_timestamp(self._max_timestamp, self._max_timestamp_offset)
        self.committed_end = self.log_end_offset
        self._old_epochs = None
        self.producers.commit()
        pending.clear()
        if self._pending_index:
            self._write_index(segment)
        if len(self.recent.offsets) > LIMIT:
            self.recent.shorten()

    def _allocate(self, file: File) -> None:
        """Have the disk make room for more than this write, up to near the segment's end.

        A file system that has to find blocks for every single write takes a third more time.
        """
        segment, end = self.active, self._position
        limit = self.config.segment_bytes - ALLOCATE_FROM_BYTES // 8
        upto = min(end + min(segment.size // 2, MOST_AHEAD_BYTES), limit)
        if upto > end:
            file.allocate(segment.size, upto - segment.size)
            self._allocated_end = segment.allocated_end = upto
        else:
            self._allocated_end = self.config.segment_bytes

    def discard_queued(self) -> None:
        """Take back all that is queued, and a failure that was to be told with it."""
        self._failure = None
        self._group_start = _NO_GROUP
        if self._pending:
            self._undo()

    def _undo_to(self, offset: int) -> None:
        """Take back everything from an offset on, queued or written."""
        self.discard_queued()
        if self.committed_end > offset:
            truncation.truncate_to(self, offset)

    def _set_time(self, now_ms: int) -> None:
        """Keep the bounds of timestamps for as long as the millisecond lasts."""
        rules = self._rules
        self._now_ms = now_ms
        self._oldest_timestamp = now_ms - rules.before_max_ms
        self._newest_timestamp = now_ms + rules.after_max_ms

    def _begin_epoch(self, leader_epoch: int, offset: int) -> None:
        if leader_epoch < 0:
            return
        if self._old_epochs is None:
            self._old_epochs = self.leader_epochs.entries
        self.leader_epochs.assign(leader_epoch, offset)

    def _index(self, last_offset: int, position: int) -> None:
        """Note the index entries of a batch; they are added when it is committed."""
        self._since_index = 0
        self._pending_index.append(
            (last_offset, position, self._max_timestamp, self._max_timestamp_offset)
        )
        if self._indexes_full():
            self._roll_size = -1

    def _indexes_full(self) -> bool:
        capacity, waiting = self.config.segment_index_bytes, len(self._pending_index)
        offset_index, time_index = self.active.offset_index, self.active.time_index
        return offset_index.is_full(capacity, waiting) or time_index.is_full(capacity, waiting)

    def _write_index(self, segment: Segment) -> None:
        capacity = self.config.segment_index_bytes
        entries, self._pending_index = self._pending_index, []
        for last_offset, position, timestamp, timestamp_offset in entries:
            segment.offset_index.append(last_offset, position, capacity)
            segment.time_index.append(timestamp, timestamp_offset, capacity)

    def _undo(self) -> None:
        """Take back everything queued, in memory and, as far as it goes, in the file."""
        segment = self.active
        self._pending.clear()
        self._pending_index.clear()
        self.producers.undo()
        if self._old_epochs is not None:
            self.leader_epochs.replace(self._old_epochs)
            self._old_epochs = None
        self.log_end_offset = self.committed_end
        self._position = segment.size
        self._max_timestamp = segment.max_timestamp
        self._max_timestamp_offset = segment.max_timestamp_offset
        self._roll_size = -1
        self._first = None
        self.recent.cut(segment.size)
        # Cut once more when the segment ends: only that cut is forced to disk.
        segment.is_loose = True
        try:
            segment.file.truncate(segment.size)
        except OSError:
            # Bytes past `size` are nobody's: the next write goes over them, closing cuts them.
            pass

    # Rolling

    def _make_room(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> int:
        """Begin a new segment if one is due and say where to append; sets the limits anew."""
        if self._position and self._should_roll(size, max_timestamp, last_offset, now_ms):
            self._write_before_roll()
            self.roll(now_ms)
        self.active.open_indexes()
        first = self._first_timestamp() if self._position else max_timestamp
        self._roll_size = self.config.segment_bytes
        self._roll_offset = self.active.base_offset + MAX_RELATIVE_OFFSET
        # Without timestamps in the batches the clock counts, so each append has to look.
        self._roll_timestamp = first + self._max_age_ms() if first >= 0 else _ALWAYS
        return self._position

    def _should_roll(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        first = self._first_timestamp()
        age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return (
            self._position + size > self.config.segment_bytes
            or age_ms > self._max_age_ms()
            or last_offset - self.active.base_offset > MAX_RELATIVE_OFFSET
            or self._indexes_full()
        )

    def _max_age_ms(self) -> int:
        return self.config.max_segment_ms - self._jitter_ms

    def _first_timestamp(self) -> int:
        """The largest timestamp of the active segment's first batch, read once."""
        if self._first is None:
            if self.active.size:
                self._first = next(self.active.batches_from(0)).max_timestamp
            else:
                self._first = int(_unpack_header(self._pending[0])[8])
        return self._first

    def _write_before_roll(self) -> None:
        """Write what is queued for the old segment; it stays part of the commit to come."""
        if not self._pending:
            return
        if self._group_start == _NO_GROUP:
            self._group_start = self.committed_end
        try:
            self._write_queued()
        except OSError as error:
            self._undo_to(self._group_start)
            self._failure = error
            raise

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end offset; nothing may be queued."""
        assert not self._pending, "commit before rolling"
        old, base_offset = self.active, self.log_end_offset
        if old.base_offset == base_offset:
            return
        self.unsynced += old.finish()
        self.write_snapshot()
        segment = Segment(self.resources.pool, self.directory, base_offset, 0)
        try:
            segment.create(self.config.segment_index_bytes, self._preallocated_bytes())
        except OSError:
            for suffix in (LOG, INDEX, TIME_INDEX):
                self.resources.files.unlink(segment.path(suffix))
            raise
        old.is_active = False
        self.add_segment(segment)
        self.activate(segment, now_ms)
        self.recent.clear()
        self.unsynced += (segment.path(LOG), old.path(INDEX), old.path(TIME_INDEX))
        try:
            self.start_flush(base_offset)
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            # The segment is there; what could not be flushed is left to the next flush.

    def _preallocated_bytes(self) -> int:
        return self.config.segment_bytes if self.config.preallocate else 0

    def write_snapshot(self) -> None:
        """Write the producer state as of the committed end, not yet forced to disk."""
        offset = self.committed_end
        if self.snapshots and self.snapshots[-1] == offset:
            return
        path = self.path(offset_name(offset, SNAPSHOT))
        file = self.resources.pool.open(path, create=True, writable=True)
        content = encode_snapshot(self.producers.entries)
        file.truncate(0)
        file.pwritev([content], 0)
        self.snapshots.append(offset)
        self.unsynced.append(path)

    def path(self, name: str) -> str:
        """The path of a file of this log."""
        return f"{self.directory}/{name}"

    # Reading

    def read(
        self, offset: int, max_bytes: int, upto: int, *, at_least_one: bool
    ) -> FileSlice | None:
        """Batches from the one that holds `offset`, or the next, up to before `upto`.

        At most max_bytes, of which the last batch may be cut; with at_least_one the first
        batch comes whole even if it is larger. None when there is nothing, or when the first
        batch does not fit. Raises ApiError(OFFSET_OUT_OF_RANGE).
        """
        return reading.read(self, offset, max_bytes, upto, at_least_one)

    def bytes_available(self, offset: int, upto: int) -> int:
        """How many bytes there are from `offset` up to before `upto`."""
        return reading.bytes_available(self, offset, upto)

    def offset_for_timestamp(self, timestamp_ms: int) -> reading.TimestampOffset | None:
        """The first record with a timestamp at or after the given one, or None."""
        return reading.offset_for_timestamp(self, timestamp_ms)

    def max_timestamp(self) -> reading.TimestampOffset | None:
        """The first record that has the largest timestamp of the log, or None."""
        return reading.max_timestamp(self)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch at or before the given one and where it ended; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.committed_end)

    # Ends of the log

    def truncate_to(self, offset: int) -> None:
        """Remove all batches that reach `offset` or lie after it."""
        truncation.truncate_to(self, offset)

    def truncate_fully(self, new_start: int) -> None:
        """Remove everything and begin again at an offset."""
        truncation.truncate_fully(self, new_start)

    def advance_log_start(self, offset: int) -> None:
        """Serve nothing before `offset` any more (DeleteRecords); at most the high watermark."""
        retention.advance_log_start(self, offset)

    def delete_old_segments(self, now_ms: int, at_most: int = ALL_SEGMENTS) -> int:
        """Remove the segments that retention and the log start offset give up; how many."""
        return retention.delete_old_segments(self, now_ms, at_most)

    # Durability

    def flush(self, upto: int | None = None) -> None:
        """Force everything below `upto`, by default all that is committed, to disk; waits."""
        flushing.flush(self, self.committed_end if upto is None else upto)

    def start_flush(self, upto: int | None = None) -> None:
        """Force everything below `upto` to disk without waiting; the recovery point follows."""
        flushing.start(self, self.committed_end if upto is None else upto)

    def close(self) -> None:
        """Leave the files as a clean shutdown does: trimmed, with a snapshot, forced to disk."""
        assert not self._pending, "commit before closing"
        # Of a log that never held anything nothing can be lost: what is missing is made anew.
        is_blank = not self.committed_end and not self.active.is_loose
        self.unsynced += self.active.finish()
        if self.committed_end > self.log_start_offset or self.producers.entries:
            self.write_snapshot()
        if not is_blank:
            self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Let go of all handles without writing anything: for logs that failed or are deleted."""
        flushing.cancel(self)
        self._pending.clear()
        self._failure = None
        self._group_start = _NO_GROUP
        for segment in self.segments:
            segment.drop_handles()

    def release_idle_memory(self) -> None:
        """Drop what is kept for tail reads if nothing was appended since the last call."""
        if self._idle_end != self.committed_end:
            self._idle_end = self.committed_end
        elif not self._pending:
            self.recent.clear()
            for segment in self.segments:
                if not segment.is_active:
                    segment.forget_indexes()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)
