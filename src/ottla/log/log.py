"""The log of one partition: appends are written in groups, reads are file slices.

A leader's append checks a batch where it lies, gives it its offset and queues its bytes. A
follower's append queues the leader's batches as they are. `write_queued` writes everything
queued with one call, and only then is it readable. Until then the buffers that were given to
the appends must not change.

Invariants:
    log_start_offset <= high_watermark <= written_end <= log_end_offset
    segments begin at or before log_start_offset, unless the topic is tiered: then batches from
    log_start_offset to the first segment are in the remote tier only
    recovery_point <= written_end: everything below it was forced to disk
    segments are sorted, never empty; the last one is the active one
    batches are queued exactly when written_end < log_end_offset
    a group of queued batches is written as a whole or not at all: if the write fails,
    everything queued is taken back, in the file, in producer state and in epochs

An append that needs a new segment writes what is queued first. If that fails, the error
stays pending: appends raise it until `write_queued` has raised it as well, because the
callers of the lost appends are waiting for that call.
"""

from __future__ import annotations

from collections.abc import Iterator
from errno import EDQUOT, ENOSPC
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.config.definition import MAX_LONG
from ottla.log import lookup, retention, truncation
from ottla.log.append_rules import UNCHECKED, NeedsRoll
from ottla.log.file_names import INDEX, LOG, PARTITION_METADATA, TIME_INDEX
from ottla.log.flush import FlushJob, FlushState
from ottla.log.replicated_batches import check_replicated
from ottla.log.resources import Resources
from ottla.log.segment.active_segment import ActiveSegment
from ottla.log.segment.file_slice import FileSlice
from ottla.log.segment.last_write import LastWrite
from ottla.log.segment.log_segments import LogSegments
from ottla.log.segment.recent_batches import RecentBatches
from ottla.log.segment.segment import Segment
from ottla.log.state.leader_epochs import EpochCache, EpochEntry
from ottla.log.state.producer_replay import Marker, update_producers
from ottla.log.state.producer_states import SEQUENCE_MASK, ProducerStates
from ottla.log.state.producer_table import ProducerBatch, ProducerTable
from ottla.log.state.snapshot_files import PRODUCERS_AT_A_TIME, SnapshotFiles
from ottla.log.state.transaction_checks import (
    begin_verification,
    check_client_batch,
    check_from_coordinator,
    check_outside_transaction,
)
from ottla.log.state.verifications import NOT_TRANSACTIONAL, UNVERIFIED
from ottla.log.store.partition_metadata import replace_topic_id
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC, NO_TIMESTAMP, ZERO_UUID, TopicPartition
from ottla.model.steps import Steps
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    Batch,
    parse_header,
)
from ottla.records.checksum import crc32c
from ottla.records.record_layout import keyless_prefixes

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig
    from ottla.log.record_search import RecordSearch

ALL_SEGMENTS = 2**31

_NO_GROUP = -1
_SEGMENTS_A_STEP = 500
_unpack_header = HEADER.unpack_from
_assign_offset = Struct(">qii").pack_into
_keyless_prefixes: Final = keyless_prefixes  # the name of an import is looked up more slowly


class Log:
    """The batches of one partition on this broker."""

    __slots__ = (
        "_failure",
        "_group_start",
        "_idle_end",
        "_is_released",
        "_rules",
        "_tiered_start",
        "active_segment",
        "cleaned_upto",
        "config",
        "directory",
        "flush_state",
        "high_watermark",
        "highest_remote_offset",
        "last_append_time",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "remote_clean_offset",
        "resources",
        "segments",
        "snapshots",
        "topic_id",
        "topic_partition",
        "truncations",
        "written_end",
    )

    def __init__(
        self,
        resources: Resources,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
    ) -> None:
        """Make a log without segments: the caller adds them, then calls `begin`."""
        self.resources = resources
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.segments = LogSegments()
        self.active_segment = ActiveSegment(resources, config)
        self.leader_epochs = EpochCache()
        self.producers = ProducerStates()
        self.snapshots = SnapshotFiles(resources.pool, directory)
        self.flush_state = FlushState(
            resources, directory, self.segments, self.leader_epochs, config.flush_messages
        )
        self.log_start_offset = self.log_end_offset = self.written_end = 0
        self.last_append_time = NO_TIMESTAMP
        self.cleaned_upto = 0
        """The offset below which the log cleaner has cleaned the log."""
        self.truncations = 0
        """How often closed segments were truncated. A clean that began before must be given up."""
        self.high_watermark = 0
        """The offset below which batches are committed: the partition moves it."""
        self.highest_remote_offset = -1
        """Up to where the remote tier has a copy, inclusive. Local segments above it are kept."""
        self.remote_clean_offset = 0
        """Below it, deletions are not needed any more, because the remote part is clean."""
        self._rules = resources.append_rules(config)
        self._failure: OSError | None = None
        self._group_start = _NO_GROUP
        """Where the group of queued batches begins, if a roll has written a part of it."""
        self._idle_end = -1
        """Where the log ended when `release_idle_memory` was last called."""
        self._is_released = False
        """True if there is nothing more to release until something is appended."""
        self._tiered_start: int | None = None
        """Where the log begins if it turns out that its topic is tiered."""

    def __repr__(self) -> str:
        return (
            f"Log({self.directory}, {self.log_start_offset}..{self.log_end_offset},"
            f" written {self.written_end}, high watermark {self.high_watermark},"
            f" recovery point {self.flush_state.recovery_point})"
        )

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def begin(self, log_start_offset: int, end_offset: int, high_watermark: int) -> None:
        """Go on from these offsets with the last segment, after loading or truncating the log."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.written_end = end_offset
        self.high_watermark = high_watermark
        self.active_segment.switch_to(self.segments.active, self.resources.clock.wall_ms())
        self._check_offsets()

    def _check_offsets(self) -> None:
        assert (
            self.log_start_offset <= self.high_watermark <= self.written_end <= self.log_end_offset
        ), self
        assert self.flush_state.recovery_point <= self.written_end, self

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings from the next append on."""
        if config.remote_storage_enable and self._tiered_start is not None:
            self._begin_in_tier(self._tiered_start)
        self.config = config
        self._rules = self.resources.append_rules(config)
        self.active_segment.reconfigure(config)
        self.flush_state.reconfigure(config.flush_messages)

    def note_tiered_start(self, log_start_offset: int) -> None:
        """Remember where the log begins if its topic is tiered.

        A broker of a cluster opens its logs before it has read all settings of topics.
        """
        self._tiered_start = log_start_offset

    def _begin_in_tier(self, log_start_offset: int) -> None:
        """Move the log start offset back to what the remote tier has."""
        self._tiered_start = None
        if log_start_offset < self.log_start_offset <= self.segments.base_offsets[0]:
            self.log_start_offset = log_start_offset

    def adopt_topic_id(self, topic_id: bytes) -> None:
        """Give a log without a topic id the id of its topic, and force it to disk."""
        if self.topic_id == ZERO_UUID:
            replace_topic_id(self.resources.files, self.path(PARTITION_METADATA), topic_id)
            self.topic_id = topic_id

    def path(self, name: str) -> str:
        """Return the path of a file of this log."""
        return f"{self.directory}/{name}"

    @property
    def active(self) -> Segment:
        """The segment that batches are appended to."""
        return self.segments.active

    @property
    def recent(self) -> RecentBatches:
        """The newest batches of the active segment."""
        return self.active_segment.recent

    @property
    def size(self) -> int:
        """Bytes of all written batches."""
        return self.segments.size

    @property
    def local_log_start_offset(self) -> int:
        """Where the batches on local disk begin; those before are in the remote tier."""
        return max(self.log_start_offset, self.segments.base_offsets[0])

    @property
    def keeps_deletions_from(self) -> int:
        """From where on the cleaner keeps tombstones and transaction markers, whatever their age.

        What they delete may still be in a remote segment, or in a local one that is copied later.
        """
        return self.remote_clean_offset if self.config.remote_storage_enable else MAX_LONG

    @property
    def last_stable_offset(self) -> int:
        """Up to where a read_committed consumer may read.

        Where the first transaction begins that is open, or whose marker is not committed.
        """
        producers = self.producers
        if not producers.ongoing and not producers.completed:
            return self.high_watermark
        unstable = producers.first_unstable_offset(self.high_watermark)
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def recovery_point(self) -> int:
        """The offset below which everything was forced to disk."""
        point = self.flush_state.recovery_point
        assert point <= self.written_end, self
        return point

    # Appending

    @property
    def has_queued(self) -> bool:
        """True if there are queued batches, or an error that `write_queued` has not raised yet."""
        return self.log_end_offset > self.written_end or self._failure is not None

    def append_as_leader(
        self,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        leader_epoch: int,
        now_ms: int,
        checked: int = UNCHECKED,
        guard: int = NOT_TRANSACTIONAL,
    ) -> int:
        """Queue the client's batch at [start, end) and return its base offset.

        `checked` says what is known about its records (see `append_rules`), `guard` whether it
        may be part of a transaction (see `verifications`). A duplicate of one of
        its producer's last batches returns the original's offset and queues nothing. Raise
        ApiError if the batch is refused, OSError if a segment that is needed cannot be begun,
        NeedsValidation if a helper process must look at its records, NeedsRoll if there is no time
        for a new segment.
        """
        if self._failure is not None:
            raise self._failure
        rules = self._rules
        if now_ms != rules.now_ms:
            rules.set_time(now_ms)
        size = end - start
        if size < HEADER_SIZE:
            rules.prepare(buffer, view, start, end, now_ms, checked)  # raises
        (
            base_offset, batch_length, _, magic, crc, attributes, offset_delta, base_timestamp,
            max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
        ) = _unpack_header(buffer, start)  # fmt: skip
        if (
            magic != MAGIC_V2
            or batch_length != size - LOG_OVERHEAD
            or attributes not in rules.accepted_attributes[checked]
            or record_count != offset_delta + 1
            or offset_delta < 0
            or base_offset != 0
            or size > rules.max_batch_bytes
            or max_timestamp > rules.newest_timestamp
            or base_timestamp < rules.oldest_timestamp
            or (
                base_sequence < 0 or producer_epoch < 0
                if producer_id >= 0
                else attributes & TRANSACTIONAL_MASK
            )
            or base_timestamp > max_timestamp
            or crc32c(view[start + ATTRIBUTES_OFFSET : end]) != crc
            or not (
                checked
                or (
                    record_count == 1  # without a key: common, so it is checked here
                    and (prefix := _keyless_prefixes.get(size - HEADER_SIZE))
                    and buffer.startswith(prefix, start + HEADER_SIZE)
                    and not buffer[end - 1]
                )
                or rules.check_plain(buffer, start + HEADER_SIZE, end, record_count, base_timestamp)
            )
        ):
            buffer, view, start, end = rules.prepare(buffer, view, start, end, now_ms, checked)
            size = end - start
            batch_length = size - LOG_OVERHEAD
            if rules.log_append_time:
                max_timestamp = now_ms
        self.last_append_time = rules.append_time
        offset = self.log_end_offset
        last_offset = offset + offset_delta
        if producer_id >= 0:
            last_sequence = (base_sequence + offset_delta) & SEQUENCE_MASK
            if attributes & TRANSACTIONAL_MASK:
                duplicate = check_client_batch(
                    self.producers, producer_id, producer_epoch, base_sequence, last_sequence, guard
                )
            else:
                duplicate = self.producers.check(
                    producer_id, producer_epoch, base_sequence, last_sequence
                )
            if duplicate is not None:
                return self._answer_duplicate(duplicate)
            if self.producers.ongoing and not attributes & TRANSACTIONAL_MASK:
                check_outside_transaction(self.producers, producer_id)
        active = self.active_segment
        limits = active.limits
        if (
            active.position + size > limits.size
            or max_timestamp > limits.timestamp
            or last_offset > limits.last_offset
        ):
            try:
                self._make_room(size, max_timestamp, last_offset, now_ms)
            except NeedsRoll:
                rules.take_back_stamp(buffer, start, end)
                raise
        if producer_id >= 0:
            self.producers.append(
                producer_id, producer_epoch, base_sequence, last_sequence,
                offset, last_offset, max_timestamp,
            )  # fmt: skip
            if attributes & TRANSACTIONAL_MASK:
                self.producers.note_transactional(producer_id, offset)
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.begin(leader_epoch, offset)
        _assign_offset(buffer, start, offset, batch_length, leader_epoch)
        queue = active.queue
        queue(view[start:end])
        active.add_batch(size, offset, last_offset, max_timestamp)
        self.log_end_offset = last_offset + 1
        return offset

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        adds_partition: bool,
    ) -> int | None:
        """Return the guard for asking the coordinator about a transaction; None if it has begun.

        Raise INVALID_PRODUCER_EPOCH if the producer is fenced already.
        """
        return begin_verification(
            self.producers, producer_id, producer_epoch, base_sequence, now_ms,
            adds_partition=adds_partition,
        )  # fmt: skip

    def check_append(
        self,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        now_ms: int,
        checked: int,
    ) -> int:
        """Check a batch that is appended later, as `append_as_leader` does, and queue nothing.

        Return what is known about its records then.
        """
        return self._rules.check(buffer, view, start, end, now_ms, checked)

    def _answer_duplicate(self, original: ProducerBatch) -> int:
        if self._rules.log_append_time:
            self.last_append_time = original.timestamp
        return original.base_offset

    def append_from_coordinator(
        self,
        batch: bytearray,
        leader_epoch: int,
        now_ms: int,
        *,
        guard: int = UNVERIFIED,
        transaction_version: int = 0,
    ) -> int:
        """Queue a transaction marker, or offsets of a transaction; return the base offset.

        A coordinator of this cluster has built the batch, so its records are not looked at. Raise
        ApiError if the producer's or the coordinator's epoch is old, or if the producer has no
        such transaction; OSError and NeedsRoll like `append_as_leader`.
        """
        if self._failure is not None:
            raise self._failure
        self._rules.stamp(batch, now_ms)
        header = parse_header(batch, 0)._replace(
            base_offset=self.log_end_offset, partition_leader_epoch=leader_epoch
        )
        marker = check_from_coordinator(self.producers, header, batch, guard, transaction_version)
        self.last_append_time = self._rules.append_time
        active, limits = self.active_segment, self.active_segment.limits
        if (
            active.position + len(batch) > limits.size
            or header.max_timestamp > limits.timestamp
            or header.last_offset > limits.last_offset
        ):
            self._make_room(len(batch), header.max_timestamp, header.last_offset, now_ms)
        _assign_offset(batch, 0, self.log_end_offset, header.batch_length, leader_epoch)
        active.queue(memoryview(batch))
        self._add_replicated(header, marker)
        return header.base_offset

    def append_as_follower(
        self, buffer: bytearray, view: memoryview, start: int, end: int, now_ms: int
    ) -> int:
        """Queue the whole batches in [start, end) as the leader wrote them; return their size.

        A batch that is cut off at the end is left out. If there is no time to begin the segment
        that a batch needs, it is left out with all that follow: they are fetched again. Raise
        ApiError(CORRUPT_MESSAGE), and queue nothing, if a batch is damaged or does not come after
        the log end offset. Raise OSError if a segment that is needed cannot be begun: the batches
        before it stay queued.
        """
        if self._failure is not None:
            raise self._failure
        active = self.active_segment
        limits = active.limits
        queued_upto = position = start
        for batch, marker in check_replicated(view, start, end, self.log_end_offset):
            size = batch.batch_length + LOG_OVERHEAD
            last_offset = batch.base_offset + batch.last_offset_delta
            if (
                active.position + size > limits.size
                or batch.max_timestamp > limits.timestamp
                or last_offset > limits.last_offset
            ):
                if position > queued_upto:
                    active.queue(view[queued_upto:position])
                    queued_upto = position
                try:
                    self._make_room_for_replicated(batch, now_ms)
                except NeedsRoll:
                    break
            self._add_replicated(batch, marker)
            position += size
        if position > queued_upto:
            active.queue(view[queued_upto:position])
        return position - start

    def _add_replicated(self, batch: Batch, marker: Marker | None) -> None:
        """Account for a batch of the leader; its bytes are queued with those around it."""
        active, last_offset = self.active_segment, batch.base_offset + batch.last_offset_delta
        if batch.producer_id >= 0:
            aborted = update_producers(self.producers, batch, marker)
            if aborted is not None:
                active.add_aborted(aborted)
        if batch.partition_leader_epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.begin(batch.partition_leader_epoch, batch.base_offset)
        size = batch.batch_length + LOG_OVERHEAD
        active.add_batch(size, self.log_end_offset, last_offset, batch.max_timestamp)
        self.log_end_offset = last_offset + 1

    def write_queued(self, *, is_awaited: bool = False) -> None:
        """Write all that is queued and make it readable.

        If somebody waits for it (`is_awaited`), it is kept in memory too, unless it is much.

        On OSError everything queued since the last call is undone, including what a roll has
        written in between.
        """
        start = self._group_start
        self._group_start = _NO_GROUP
        written_end, end = self.written_end, self.log_end_offset
        has_queued = end > written_end
        if has_queued:
            if start == _NO_GROUP:
                start = written_end
        elif self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        elif start == _NO_GROUP:
            return
        try:
            if has_queued:
                active = self.active_segment
                active.write(written_end if is_awaited else -1)
                self.written_end = end
                assert self.log_start_offset <= self.high_watermark <= end, self
                if self.leader_epochs.has_queued:
                    self.leader_epochs.mark_written()
                if self.producers.queued:
                    self.producers.mark_written()
                if active.has_entries:
                    self._write_indexes()
            if end >= self.flush_state.due_offset:
                self.flush()
        except OSError:
            self._undo_to(start)
            raise

    def _write_indexes(self) -> None:
        changed = self.active_segment.write_indexes()
        if changed is not None:
            self.flush_state.note_changed(changed)

    def discard_queued(self) -> None:
        """Take back all that is queued, and an error that has not been raised yet."""
        self._failure = None
        self._group_start = _NO_GROUP
        if self.log_end_offset > self.written_end:
            self.active_segment.undo()
            self.producers.undo_queued()
            self.leader_epochs.undo_queued()
            self.log_end_offset = self.written_end

    def _undo_to(self, offset: int) -> None:
        """Take back everything from an offset on, queued or written."""
        self.discard_queued()
        if self.written_end > offset:
            self.truncate_to(offset)

    # Rolling

    def _make_room(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> None:
        """Begin a new segment if the batch needs one, and compute the limits of the next roll.

        Raise NeedsRoll if there is no time for that; the metadata quorum cannot wait.
        """
        active = self.active_segment
        if active.should_roll(size, max_timestamp, last_offset, now_ms):
            if not self.resources.has_time() and self.topic_partition.topic != METADATA_TOPIC:
                raise NeedsRoll
            self._write_before_roll()
            self.roll(now_ms)
        active.set_limits(max_timestamp)

    def _make_room_for_replicated(self, batch: Batch, now_ms: int) -> None:
        size, timestamp, last_offset = batch.size, batch.max_timestamp, batch.last_offset
        self._make_room(size, timestamp, last_offset, now_ms)
        if last_offset > self.active_segment.limits.last_offset:
            # The gap before the batch is too wide for one segment: begin a new one after it.
            if self._group_start == _NO_GROUP:
                self._group_start = self.written_end
            self.log_end_offset = self.written_end = batch.base_offset
            self.roll(now_ms)
            self.active_segment.rolled = None  # its last batch does not reach up to this segment
            self._make_room(size, timestamp, last_offset, now_ms)

    def _write_before_roll(self) -> None:
        """Write what is queued for the old segment; it stays part of the group."""
        if self.log_end_offset == self.written_end:
            return
        start = self.written_end if self._group_start == _NO_GROUP else self._group_start
        try:
            self.write_queued()
        except OSError as error:
            self._failure = error
            raise
        self._group_start = start

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end offset; nothing may be queued."""
        assert self.log_end_offset == self.written_end, "write_queued before rolling"
        old, base_offset = self.segments.active, self.log_end_offset
        if old.base_offset == base_offset:
            return
        self.flush_state.note_changed(*old.finish())
        if len(self.producers) > PRODUCERS_AT_A_TIME:
            self._start_snapshot()
        else:
            self.write_snapshot()
        segment = self.create_segment(base_offset)
        old.make_inactive()
        self.segments.add(segment)
        self.active_segment.roll_to(segment, now_ms)
        self.flush_state.note_changed(old.path(INDEX), old.path(TIME_INDEX))
        try:
            self.start_flush(base_offset)
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            # The segment is there; what could not be flushed is left to the next flush.

    def create_segment(self, base_offset: int) -> Segment:
        """Make the files of a new segment; the caller adds it to the segments."""
        config = self.config
        segment = Segment(self.resources.pool, self.directory, base_offset, 0)
        preallocated = config.segment_bytes if config.preallocate else 0
        try:
            segment.create(config.segment_index_bytes, preallocated)
        except OSError:
            for suffix in (LOG, INDEX, TIME_INDEX):
                self.resources.files.unlink(segment.path(suffix))
            raise
        self.flush_state.note_changed(segment.path(LOG))
        return segment

    def write_snapshot(self) -> None:
        """Write the producer state as of the written end, not yet forced to disk."""
        path = self.snapshots.write(self.written_end, self.producers.entries)
        if path is not None:
            self.flush_state.note_changed(path)

    def _start_snapshot(self) -> None:
        """Write the state of many producers in the background."""

        def done(result: str | OSError) -> None:
            if not isinstance(result, OSError):
                self.flush_state.note_changed(result)
            elif result.errno not in (ENOSPC, EDQUOT):
                self.resources.on_error(self.directory, result)
            # On a full disk there is one snapshot less.

        self.snapshots.start_write(
            self.written_end, self.producers.entries, self.resources.background, done
        )

    # Reading

    def read(
        self, offset: int, max_bytes: int, upto: int, *, at_least_one: bool
    ) -> FileSlice | None:
        """Return batches from the one that holds `offset`, or the next, up to before `upto`.

        At most max_bytes, of which the last batch may be cut; with at_least_one the first
        batch comes whole even if it is larger. None when there is nothing, or when the first
        batch does not fit. Raise ApiError(OFFSET_OUT_OF_RANGE), and OffsetTiered if the offset
        is in the remote tier only.
        """
        return lookup.read(self, offset, max_bytes, upto, at_least_one)

    def last_write(self, offset: int, max_bytes: int, upto: int) -> LastWrite | None:
        """Return the last write if it is what `read` would find, and is in memory."""
        active = self.active_segment
        last = active.last_write
        if (
            last is None
            or offset != last.offset
            or upto != self.written_end
            or last.length > max_bytes
            or offset < self.log_start_offset
            or active.segment.has_aborted
        ):
            return None
        return last

    def aborted_transactions(self, offset: int, records: FileSlice, upto: int) -> bytearray:
        """Return entries of the aborted transactions with records in what `read` has found.

        There may be some more, which have none. Raise IndexNotReady.
        """
        return lookup.aborted_transactions(self, offset, records, upto)

    def bytes_available(self, offset: int, upto: int) -> int:
        """Return how many bytes there are from `offset` up to before `upto`."""
        return lookup.bytes_available(self, offset, upto)

    def offset_for_timestamp(
        self, timestamp_ms: int, search: RecordSearch | None = None
    ) -> lookup.TimestampOffset | None:
        """Return the first record with a timestamp at or after the given one, or None.

        Raise NeedsRecordSearch if `search` is bounded and a helper process must go on.
        """
        return lookup.offset_for_timestamp(self, timestamp_ms, search or _unbounded_search())

    def max_timestamp(self, search: RecordSearch | None = None) -> lookup.TimestampOffset | None:
        """Return the first record that has the largest timestamp of the log, or None.

        Raise NeedsRecordSearch like `offset_for_timestamp`.
        """
        return lookup.max_timestamp(self, search or _unbounded_search())

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to the given one and where it ended; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.written_end)

    # Ends of the log

    def truncate_to(self, offset: int) -> None:
        """Remove all batches that reach `offset` or lie after it."""
        truncation.truncate_to(self, offset)

    def truncate_fully(self, new_start: int, log_start_offset: int | None = None) -> None:
        """Remove everything and begin again at an offset.

        `log_start_offset` is smaller if the remote tier has what comes before the new segment.
        """
        truncation.truncate_fully(self, new_start, log_start_offset)

    def begin_after_tier(
        self,
        local_start: int,
        log_start_offset: int,
        epochs: tuple[EpochEntry, ...],
        producers: ProducerTable,
    ) -> None:
        """Remove everything and begin with the state that the remote tier has at an offset.

        Forces it to disk: without the epochs, the remote part could not be read any more.
        """
        truncation.begin_after_tier(self, local_start, log_start_offset, epochs, producers)

    def advance_log_start(self, offset: int) -> None:
        """Serve nothing before `offset` any more (DeleteRecords); at most the high watermark."""
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} cannot begin at {offset}: the high watermark is"
                f" {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def note_cleaned(self, upto: int) -> None:
        """Remember up to where the log cleaner has cleaned the log."""
        self.cleaned_upto = min(upto, self.log_end_offset)

    def note_remote(self, highest_offset: int, clean_offset: int) -> None:
        """Remember up to where the remote tier has a copy, and up to where that copy is clean."""
        assert clean_offset <= highest_offset + 1, (self, highest_offset, clean_offset)
        self.highest_remote_offset = highest_offset
        self.remote_clean_offset = clean_offset

    def forget_remote(self) -> None:
        """Begin with the first local segment: the remote tier of the topic was turned off."""
        self.note_remote(-1, 0)
        self._tiered_start = None
        start = self.local_log_start_offset
        # What the tier had is committed, also if this broker has not heard so since it started.
        self.high_watermark = max(self.high_watermark, start)
        self.advance_log_start(start)

    def delete_old_segments(self, now_ms: int, at_most: int = ALL_SEGMENTS) -> int:
        """Remove the segments that retention no longer keeps; return how many."""
        return retention.delete_old_segments(self, now_ms, at_most)

    # Durability

    def flush(self, upto: int | None = None) -> None:
        """Force everything below `upto`, by default all that is written, to disk; waits."""
        self.flush_state.flush(self._flush_end(upto))

    def start_flush(self, upto: int | None = None) -> None:
        """Force everything below `upto` to disk without waiting; the recovery point follows."""
        self.flush_state.start(self._flush_end(upto))

    def _flush_end(self, upto: int | None) -> int:
        return self.written_end if upto is None else min(upto, self.written_end)

    def close(self) -> None:
        """Leave the files as a clean shutdown does: trimmed, with a snapshot, forced to disk."""
        job = self.prepare_close()
        if job is not None:
            self.flush_state.run(job)
        self.abandon()

    def prepare_close(self) -> FlushJob | None:
        """Write what a clean shutdown writes; return what has to be forced to disk after it."""
        assert self.log_end_offset == self.written_end, "write_queued before closing"
        # A log that never held anything cannot lose anything: missing files are made again.
        is_blank = not self.written_end and not self.active.is_loose
        self.flush_state.note_changed(*self.active.finish())
        if self.written_end > self.log_start_offset or self.producers.entries:
            self.write_snapshot()
        return None if is_blank else self.flush_state.prepare(self.written_end)

    def abandon(self) -> None:
        """Let go of all handles without writing anything: for logs that failed or are deleted."""
        self.flush_state.cancel()
        self.snapshots.cancel()
        self.active_segment.discard()
        self.log_end_offset = self.written_end
        self._failure = None
        self._group_start = _NO_GROUP
        for segment in self.segments:
            self.resources.index_jobs.cancel(segment)
            segment.drop_handles()

    def release_idle_memory(self) -> Steps[None]:
        """Drop what is kept for tail reads if nothing was appended since the last call."""
        if self._idle_end != self.written_end:
            self._idle_end = self.written_end
            self._is_released = False
        elif not self._is_released and self.log_end_offset == self.written_end:
            # Reads open the indexes of older segments again.
            self._is_released = len(self.segments) == 1
            self.active_segment.forget_recent()
            yield from self.forget_indexes()

    def forget_indexes(self) -> Steps[None]:
        """Free the memory of the indexes of closed segments, which may be thousands."""
        for number, segment in enumerate(list(self.segments), 1):
            if segment.has_indexes and not segment.is_active:
                segment.forget_indexes()
            if not number % _SEGMENTS_A_STEP:
                yield


def _unbounded_search() -> RecordSearch:
    from ottla.log.record_search import RecordSearch

    return RecordSearch()
