"""The metadata log on disk: batches are queued, written as a group, forced to disk off the loop.

One group is written at a time: `append` its batches, then `flush`. The group goes to the file
with one call, a background job forces it to disk, then `done` is called. If that fails, the
caller cuts the log back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.config.definition import MAX_INT, MAX_LONG
from ottla.config.topic import LogConfig
from ottla.log.append_rules import WITH_KEYS
from ottla.log.log import Log
from ottla.log.segment.batch_scan import check_crc
from ottla.metadata.serde import MetadataError
from ottla.metadata.snapshot import SnapshotId
from ottla.raft.log_view import OffsetAndEpoch
from ottla.records.batch import Batch, CorruptBatch, scan

METADATA_LOG_CONFIG = LogConfig(
    flush_messages=1,
    max_message_bytes=MAX_INT,
    message_timestamp_after_max_ms=MAX_LONG,
    message_timestamp_before_max_ms=MAX_LONG,
    retention_bytes=-1,
    retention_ms=-1,
)
"""What was recovered at start is forced to disk before it counts (`flush_messages`). Records are
removed only when a snapshot stands for them, so retention has no say."""

_READ_BYTES = 1024 * 1024


class MetadataLog:
    """Appends to the metadata log; also the view of the log that the quorum has."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.snapshots: list[SnapshotId] = []
        """The snapshots on disk, oldest first."""
        # From here on this class forces each group to disk, off the loop.
        log.reconfigure(log.config.replace(flush_messages=MAX_LONG))
        log.flush_state.on_flush = self._flushed
        self._done: Callable[[OSError | None], None] | None = None
        self._error: OSError | None = None

    # -- writing -------------------------------------------------------------------------

    def append(self, batch: bytearray, epoch: int) -> int:
        """Queue a batch at the end of the log; return its base offset."""
        now_ms = self.log.resources.clock.wall_ms()
        return self.log.append_as_leader(
            batch, memoryview(batch), 0, len(batch), epoch, now_ms, checked=WITH_KEYS
        )

    def append_fetched(self, data: bytearray) -> int:
        """Queue the leader's batches; return their size. Raise CORRUPT_MESSAGE for wrong ones."""
        now_ms = self.log.resources.clock.wall_ms()
        return self.log.append_as_follower(data, memoryview(data), 0, len(data), now_ms)

    def flush(self, done: Callable[[OSError | None], None]) -> None:
        """Write what is queued; call `done` when it is on disk, or with the error."""
        assert self._done is None, "a group is being written"
        try:
            self.log.write_queued()
            if self._error is not None:
                raise self._error
            self._done = done
            self._start_flush()
        except OSError as error:
            self._done = self._error = None
            done(error)

    def _start_flush(self) -> None:
        self.log.start_flush()
        if not self.log.flush_state.is_under_way:
            self._flushed(None)  # everything is on disk already

    def start_over(self, offset: int) -> None:
        """Remove everything and go on at an offset. A flush under way begins again."""
        self.log.truncate_fully(offset)
        if self._done is not None and not self.log.flush_state.is_under_way:
            self._start_flush()

    def truncate(self, offset: int) -> None:
        """Remove everything from an offset on. A flush under way begins again."""
        self.log.truncate_to(offset)
        if self._done is not None and not self.log.flush_state.is_under_way:
            self._start_flush()

    def flush_now(self) -> None:
        """Write what is queued and wait for the disk; only while nothing is served."""
        self.log.write_queued()
        self.log.flush()

    def _flushed(self, error: OSError | None) -> None:
        """Take the result of a flush in the background, ours or that of a finished segment."""
        done, self._done = self._done, None
        if done is not None:
            done(error)
        elif error is not None:
            self._error = error  # the group that is being queued has finished a segment
            self.log.resources.notes.append(f"{self.log.directory}: cannot be flushed: {error}")

    def cut_back(self, offset: int) -> bool:
        """Remove everything from an offset on; False if the log cannot be used any more."""
        self._error = None
        try:
            self.log.truncate_to(offset)
        except OSError:
            # A cut that is made but not forced to disk is covered by the next write that is.
            return self.log.log_end_offset == offset
        return True

    # -- reading -------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int) -> bytes | None:
        """Return whole batches from an offset on, at least one; None at the end of the log.

        What is queued is written first, so that followers get it while this node forces it to
        disk. Whatever a peer asks for, it gets a part that is read in a moment.
        """
        log = self.log
        if log.has_queued:
            log.write_queued()
        most = min(max_bytes, _READ_BYTES)
        piece = log.read(offset, most, log.log_end_offset, at_least_one=True)
        return None if piece is None else piece.file.pread(piece.length, piece.position)

    def batches(self, offset: int) -> Iterator[tuple[Batch, bytes]]:
        """Return the batches from an offset on with their bytes; raise MetadataError at damage.

        A part of the log is in memory at a time. What is queued is left out: it is not committed.
        Raise OSError when the log cannot be read.
        """
        log, first_offset = self.log, offset
        while offset < log.written_end:
            piece = log.read(offset, _READ_BYTES, log.written_end, at_least_one=True)
            if piece is None:
                raise MetadataError(f"the metadata log ends at {offset}, not {log.written_end}")
            data = piece.file.pread(piece.length, piece.position)
            try:
                for batch in scan(data, 0, len(data)):
                    check_crc(data, batch, batch.position)
                    if batch.base_offset > offset:
                        raise MetadataError(
                            f"{log.directory}: the metadata records {offset} to"
                            f" {batch.base_offset - 1} are missing"
                        )
                    if batch.base_offset < offset and offset > first_offset:
                        raise CorruptBatch(
                            batch.position, f"its offset is {batch.base_offset}, not {offset}"
                        )
                    offset = batch.next_offset
                    yield batch, data[batch.position : batch.end]
            except CorruptBatch as error:
                raise MetadataError(
                    f"{piece.file.path}: the metadata log is damaged at offset {offset}, position"
                    f" {piece.position + error.position}: {error.reason}; restore"
                    f" {log.directory} from a copy"
                ) from error

    # -- the quorum's view (LogView) -----------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def end_epoch(self) -> int:
        epoch = self.log.leader_epochs.latest_epoch
        if epoch < 0 and self.snapshots:
            return self.snapshots[-1].epoch
        return max(epoch, 0)

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return OffsetAndEpoch(*self.snapshots[0]) if self.snapshots else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return OffsetAndEpoch(*self.snapshots[-1]) if self.snapshots else None

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch not above `epoch`, and the offset where it ends."""
        found, end_offset = self.log.end_offset_for_epoch(epoch)
        if found < 0:
            return OffsetAndEpoch(self.log.log_end_offset, self.end_epoch)
        return OffsetAndEpoch(end_offset, found)
