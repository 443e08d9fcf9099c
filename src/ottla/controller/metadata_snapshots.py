"""Snapshots of the metadata image in the metadata log's directory (KIP-630).

A snapshot is written when enough records or enough time have passed since the last one. It is
encoded in small pieces on the loop and written in the background, as a `.part` file that is
forced to disk and then renamed. So a file with its proper name is whole, unless it was
damaged later.

Old snapshots, and the log segments before the oldest one that is kept, are removed when the
directory is larger than metadata.max.retention.bytes or the snapshot older than
metadata.max.retention.ms. The newest one always stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.controller.metadata_log import MetadataLog
from ottla.log.file_names import DELETED
from ottla.metadata.control_records import QuorumRecords
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.serde import MetadataError
from ottla.metadata.snapshot import (
    PART_SUFFIX,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    snapshot_id,
)
from ottla.model.value import Value
from ottla.ports import File, write_file_atomically
from ottla.wire.messages.k_raft_version_record import KRaftVersionRecord
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.messages.voters_record import VotersRecord

RETRY_DELAY_MS = 60_000
_CONTROL_RECORDS = {
    SnapshotHeaderRecord,
    SnapshotFooterRecord,
    KRaftVersionRecord,
    VotersRecord,
}


class SnapshotConfig(Value):
    """When snapshots are written and removed: Kafka's settings and defaults."""

    max_record_bytes: int = 20 * 1024 * 1024
    """metadata.log.max.record.bytes.between.snapshots"""
    max_interval_ms: int = 60 * 60 * 1000
    """metadata.log.max.snapshot.interval.ms; 0 for never"""
    retention_bytes: int = 100 * 1024 * 1024
    """metadata.max.retention.bytes; negative for no limit"""
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    """metadata.max.retention.ms; negative for no limit"""


class LoadedSnapshot(Value):
    """The state that a start begins with. The log continues at `offset`."""

    offset: int
    delta: MetadataDelta
    quorum_records: QuorumRecords


class MetadataSnapshots:
    """The snapshots of one metadata log."""

    def __init__(self, log: MetadataLog, config: SnapshotConfig) -> None:
        self._log = log
        self._resources = log.log.resources
        self._config = config
        self.quorum_records = QuorumRecords()
        """The records about voters, which go into every snapshot."""
        self.on_removed: Callable[[], None] | None = None
        """Called when the log begins at a later record, because older ones were removed."""
        self._bytes = 0
        """Bytes of records since the last snapshot."""
        # Monotonic times: when the last snapshot was begun, and when the next one may be.
        self._since_ms = self._not_before_ms = self._resources.clock.monotonic_ms()
        self._timestamps: dict[SnapshotId, int] = {}
        self._sizes: dict[SnapshotId, int] = {}
        self._job: _WriteJob | None = None
        self._find()

    # -- start ---------------------------------------------------------------------------

    def _find(self) -> None:
        """List the snapshots, and remove what an interrupted write left."""
        for entry in self._resources.files.list(self._log.log.directory):
            found = snapshot_id(entry.name)
            if found is not None:
                self._log.snapshots.append(found)
                self._sizes[found] = entry.size
                self._timestamps[found] = entry.mtime_ms
            elif entry.name.endswith(PART_SUFFIX):
                self._resources.files.unlink(self._log.log.path(entry.name))
        self._log.snapshots.sort()

    def load(self, image: MetadataImage) -> LoadedSnapshot:
        """Read the newest whole snapshot into a delta of the empty image.

        One that is damaged is passed over, if the log reaches back to the one before. Else
        MetadataError.
        """
        problem = ""
        while self._log.snapshots:
            newest = self._log.snapshots[-1]
            try:
                loaded = self._read(newest, image)
            except MetadataError as error:
                problem = str(error)
                self._forget_damaged(newest, problem)
                continue
            self._check_reach(newest.offset, problem)
            return loaded
        self._check_reach(0, problem)
        return LoadedSnapshot(0, MetadataDelta(image), QuorumRecords())

    def load_installed(self, snapshot: SnapshotId, image: MetadataImage) -> LoadedSnapshot:
        """Read a snapshot that came from the leader into a delta of the empty image."""
        entry = self._resources.files.stat(self._log.log.path(snapshot.file_name))
        self._sizes[snapshot] = entry.size
        self._timestamps[snapshot] = entry.mtime_ms
        self._bytes = 0
        return self._read(snapshot, image)

    def _read(self, snapshot: SnapshotId, image: MetadataImage) -> LoadedSnapshot:
        delta, records = MetadataDelta(image), QuorumRecords()
        file = self._resources.files.open(self._log.log.path(snapshot.file_name))
        try:
            for message in decode_snapshot(file):
                if type(message) not in _CONTROL_RECORDS:
                    delta.replay(message)
                elif isinstance(message, SnapshotHeaderRecord):
                    self._timestamps[snapshot] = message.last_contained_log_timestamp
                else:
                    records = records.after(message)
        finally:
            file.close()
        return LoadedSnapshot(snapshot.offset, delta, records)

    def _forget_damaged(self, snapshot: SnapshotId, problem: str) -> None:
        """Pass over a damaged snapshot. Its file stays, so that people can look at it."""
        self._log.snapshots.remove(snapshot)
        self._resources.notes.append(f"a damaged metadata snapshot is not used: {problem}")

    def _check_reach(self, offset: int, problem: str) -> None:
        """Refuse to start if records between the snapshot and the log are missing."""
        start = self._log.start_offset
        if start <= offset:
            return
        directory = self._log.log.directory
        reason = problem or f"{directory} has no snapshot of the records before {start}"
        raise MetadataError(
            f"{reason}; the metadata log begins at {start}, so the records from {offset} on are"
            " missing: restore this directory from a copy"
        )

    # -- writing -------------------------------------------------------------------------

    def replayed(self, size: int) -> None:
        """Count bytes of the log that a start had to read."""
        self._bytes += size

    def committed(self, size: int, image: MetadataImage) -> None:
        """Count bytes of records that were committed, and write a snapshot if one is due."""
        self._bytes += size
        if self._bytes >= self._config.max_record_bytes:
            self.write_if_due(image)

    def write_if_due(self, image: MetadataImage) -> None:
        """Begin to write a snapshot of the image if one is due; called now and then."""
        now_ms = self._resources.clock.monotonic_ms()
        interval_ms = self._config.max_interval_ms
        is_due = self._bytes >= self._config.max_record_bytes or (
            0 < interval_ms <= now_ms - self._since_ms and self._bytes > 0
        )
        if is_due and self._job is None and now_ms >= self._not_before_ms:
            self._bytes, self._since_ms = 0, now_ms
            self._write(image)

    def _write(self, image: MetadataImage) -> None:
        snapshot = SnapshotId(image.end_offset, image.epoch)
        if snapshot in self._log.snapshots:
            return
        now_ms = self._resources.clock.wall_ms()
        batches = encode_snapshot(image, now_ms, self.quorum_records.messages())
        self._timestamps[snapshot] = now_ms
        self._job = _WriteJob(self._log, snapshot, batches, self._written)
        self._job.start()

    def write_first(self, records: QuorumRecords, image: MetadataImage) -> None:
        """Write the snapshot that begins a new quorum with its voters, and wait for the disk."""
        snapshot = SnapshotId(0, 0)
        batches = encode_snapshot(image, self._resources.clock.wall_ms(), records.messages())
        content = b"".join(batches)
        path = self._log.log.path(snapshot.file_name)
        write_file_atomically(self._resources.files, path, content)
        self.quorum_records = records
        self._sizes[snapshot] = len(content)
        self._timestamps[snapshot] = self._resources.clock.wall_ms()
        self._log.snapshots.append(snapshot)

    def _written(self, job: _WriteJob, error: OSError | None) -> None:
        self._job = None
        if error is not None:
            self._not_before_ms = self._resources.clock.monotonic_ms() + RETRY_DELAY_MS
            self._bytes += self._config.max_record_bytes  # it is still due
            self._resources.notes.append(f"a metadata snapshot cannot be written: {error}")
            return
        if job.snapshot.offset < self._log.start_offset:
            self._discard(job.snapshot)  # a newer one of the leader was installed meanwhile
            return
        self._sizes[job.snapshot] = job.size
        self._log.snapshots.append(job.snapshot)
        self.remove_old()

    # -- removing ------------------------------------------------------------------------

    def remove_old(self) -> None:
        """Remove snapshots that retention gives up, and the log segments before the next one."""
        snapshots = self._log.snapshots
        while len(snapshots) > 1 and self._is_given_up(snapshots[0]):
            old = snapshots.pop(0)
            try:
                self._remove_before(old, snapshots[0])
            except OSError as error:
                self._resources.notes.append(f"old metadata cannot be removed: {error}")
                return
            if self.on_removed is not None:
                self.on_removed()

    def _is_given_up(self, oldest: SnapshotId) -> bool:
        size = self._log.log.size + sum(self._sizes[each] for each in self._log.snapshots)
        age_ms = self._resources.clock.wall_ms() - self._timestamps[oldest]
        return 0 <= self._config.retention_bytes < size or 0 <= self._config.retention_ms < age_ms

    def _remove_before(self, old: SnapshotId, kept: SnapshotId) -> None:
        log = self._log.log
        now_ms = self._resources.clock.wall_ms()
        log.advance_log_start(kept.offset)
        log.delete_old_segments(now_ms)
        self._remove_file(old)

    def _remove_file(self, old: SnapshotId) -> None:
        log = self._log.log
        path = log.path(old.file_name)
        due_ms = self._resources.clock.wall_ms() + log.config.file_delete_delay_ms
        self._resources.files.rename(path, path + DELETED)
        self._resources.trash.add_file(path + DELETED, due_ms)

    def _discard(self, snapshot: SnapshotId) -> None:
        """Remove a snapshot that was written and is of no use."""
        del self._timestamps[snapshot]
        try:
            self._remove_file(snapshot)
        except OSError as error:
            self._resources.notes.append(f"old metadata cannot be removed: {error}")


class _WriteJob:
    """One snapshot on its way to the disk: a piece is made on the loop, written off it."""

    def __init__(
        self,
        log: MetadataLog,
        snapshot: SnapshotId,
        batches: Iterator[bytearray],
        done: Callable[[_WriteJob, OSError | None], None],
    ) -> None:
        self.snapshot = snapshot
        self.size = 0
        self._log = log.log
        self._files = log.log.resources.files
        self._background = log.log.resources.background
        self._batches = batches
        self._done = done
        self._part = log.log.path(snapshot.part_name)
        self._file: File | None = None

    def start(self) -> None:
        self._background.submit(self._create, self._created)

    def _create(self) -> File:
        file = self._files.open(self._part, create=True, writable=True)
        file.truncate(0)
        return file

    def _created(self, result: File | OSError) -> None:
        if isinstance(result, OSError):
            self._end(result)
        else:
            self._file = result
            self._continue(None)

    def _continue(self, error: OSError | None) -> None:
        """Make the next piece and have it written; then sync, rename, sync the directory."""
        if error is not None:
            self._end(error)
            return
        batch, file = next(self._batches, None), self._file
        assert file is not None
        if batch is None:
            self._background.submit(self._finish, self._end)
            return
        position = self.size
        self.size += len(batch)
        self._background.submit(lambda: file.pwritev([batch], position), self._continue)

    def _finish(self) -> None:
        """Force the file to disk and give it its name; off the loop."""
        assert self._file is not None
        self._file.sync()
        self._files.rename(self._part, self._log.path(self.snapshot.file_name))
        self._files.sync_dir(self._log.directory)

    def _end(self, error: OSError | None) -> None:
        if self._file is not None:
            self._file.close()
        if error is not None:
            self._background.submit(self._discard, lambda result: self._done(self, error))
        else:
            self._done(self, None)

    def _discard(self) -> None:
        """Remove what was written, whatever name it has by now; off the loop."""
        self._files.unlink(self._part)
        self._files.unlink(self._log.path(self.snapshot.file_name))
