"""Forcing a log to disk, at once or off the loop, and moving the recovery point after it.

Order: the segments' bytes, the indexes of rolled segments, new snapshots and other new files,
the leader epochs (written beside, synced, renamed), the directory; then the recovery point.
The active segment's indexes are left out: recovery checks them and needs no more than their
order.

In the background only syncs happen. Every change of a file is made on the loop, so a job that
finds its log changed meanwhile has nothing to take back. The names of the files are listed in the
background too: there may be thousands of segments.

Invariant: everything below the recovery point was forced to disk, so it is never past the
written end of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ottla.log.file_names import INDEX, LEADER_EPOCHS, LOG, TEMPORARY, TIME_INDEX
from ottla.log.resources import Resources
from ottla.log.segment.log_segments import LogSegments
from ottla.log.segment.segment import Segment
from ottla.log.state.leader_epochs import EpochCache
from ottla.ports import Files


class FlushJob:
    """The files that one flush forces to disk."""

    __slots__ = (
        "_directory",
        "_files",
        "_is_new_directory",
        "_segments",
        "again",
        "epochs_path",
        "is_given_up",
        "new_paths",
        "upto",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        upto: int,
        segments: Sequence[Segment],
        new_paths: list[str],
        *,
        is_new_directory: bool,
        epochs_path: str,
    ) -> None:
        self._files = files
        self._directory = directory
        self._is_new_directory = is_new_directory
        self._segments = segments
        """The segments with bytes below `upto` that are not on disk yet."""
        self.upto = upto
        self.is_given_up = False
        """True if it should force no more files to disk: another job will."""
        self.again = -1
        """The offset up to which another flush was asked for meanwhile."""
        self.new_paths = new_paths
        self.epochs_path = epochs_path
        """The file that takes the place of the leader epochs; empty if they have not changed."""

    @property
    def file_count(self) -> int:
        """About how many files the job forces to disk."""
        return len(self._segments) + len(self.new_paths)

    def sync(self) -> None:
        """Force the files to disk; off the loop.

        Each file is open only while it is synced, because many jobs may be waiting.
        """
        synced: set[str] = set()
        for path in self._paths():
            if self.is_given_up:
                return
            if path in synced:
                continue
            synced.add(path)
            try:
                file = self._files.open(path)
            except FileNotFoundError:  # removed with its segment; the directory sync covers it
                continue
            file.sync()
            file.close()
        if self.new_paths and not self.epochs_path:
            self.sync_directory()

    def _paths(self) -> Iterator[str]:
        """Yield the files in their order; some are named twice."""
        for segment in self._segments:
            yield segment.path(LOG)
            if not segment.is_active:
                yield segment.path(INDEX)
                yield segment.path(TIME_INDEX)
        yield from self.new_paths
        if self.epochs_path:
            yield self.epochs_path

    def sync_directory(self) -> None:
        """Force the file names, and a new directory's own name, to disk; off the loop."""
        self._files.sync_dir(self._directory)
        if self._is_new_directory:
            self._files.sync_dir(self._directory.rpartition("/")[0])

    def put_epochs(self) -> bool:
        """Put the synced epochs in place; return True if the directory must be synced after it."""
        if not self.epochs_path:
            return False
        self._files.rename(self.epochs_path, f"{self._directory}/{LEADER_EPOCHS}")
        return True


class FlushState:
    """How much of a log is on disk, what is not yet, and the flush under way."""

    __slots__ = (
        "_directory",
        "_flush_messages",
        "_is_new_directory",
        "_job",
        "_leader_epochs",
        "_resources",
        "_segments",
        "_unsynced",
        "due_offset",
        "flushed_ms",
        "on_flush",
        "recovery_point",
    )

    def __init__(
        self,
        resources: Resources,
        directory: str,
        segments: LogSegments,
        leader_epochs: EpochCache,
        flush_messages: int,
    ) -> None:
        self._resources = resources
        self._directory = directory
        self._segments = segments
        self._leader_epochs = leader_epochs
        self._job: FlushJob | None = None
        self._is_new_directory = False
        self._unsynced: list[str] = []
        """Files that are new, were cut or were removed since the last flush."""
        self._flush_messages = flush_messages
        self.recovery_point = 0
        self.due_offset = flush_messages
        """A written end at or after this offset is to be flushed at once (flush.messages)."""
        self.flushed_ms = resources.clock.wall_ms()
        """When the log was last forced to disk, or opened."""
        self.on_flush: Callable[[OSError | None], None] | None = None
        """Called when flushes in the background are over, with the error if one failed.

        Without it errors go to `Resources.on_error`.
        """

    def note_new_directory(self) -> None:
        """Force the name of the directory itself to disk with the next flush."""
        self._is_new_directory = True

    def note_changed(self, *paths: str) -> None:
        """Force these files to disk with the next flush: they are new, cut or removed."""
        self._unsynced += paths

    def reconfigure(self, flush_messages: int) -> None:
        """Apply a new flush.messages."""
        self._flush_messages = flush_messages
        self.set_recovery_point(self.recovery_point)

    def set_recovery_point(self, recovery_point: int) -> None:
        """Set the recovery point."""
        self.recovery_point = recovery_point
        self.due_offset = recovery_point + self._flush_messages

    def truncate_to(self, offset: int) -> None:
        """Move the recovery point back if the log ends before it now."""
        self.set_recovery_point(min(self.recovery_point, offset))

    def flush(self, upto: int) -> None:
        """Force everything below an offset to disk and wait for it."""
        job = self.prepare(upto)
        if job is not None:
            self.run(job)

    def prepare(self, upto: int) -> FlushJob | None:
        """Return what has to be forced to disk for everything below an offset; None if nothing."""
        self.cancel()
        return self._new_job(upto) if self._is_needed(upto) else None

    def run(self, job: FlushJob) -> None:
        """Force the files of a job to disk and wait for it."""
        try:
            job.sync()
            if job.put_epochs():
                job.sync_directory()
        except OSError:
            self._give_up(job)
            raise
        self.finish(job)

    def start(self, upto: int) -> None:
        """Flush in the background, one job at a time; raise OSError if it cannot be begun."""
        if self._job is not None:
            self._job.again = max(self._job.again, upto)
        elif self._is_needed(upto):
            job = self._job = self._new_job(upto)
            self._resources.background.submit(job.sync, lambda result: self._synced(job, result))

    @property
    def is_under_way(self) -> bool:
        """True while a flush in the background has not ended."""
        return self._job is not None

    def cancel(self) -> None:
        """Forget the flush under way, if any: what it covers counts as not flushed."""
        job, self._job = self._job, None
        if job is not None:
            self._give_up(job)

    def stop(self) -> None:
        """Cancel the flush under way, and let it force no more files to disk."""
        if self._job is not None:
            self._job.is_given_up = True
        self.cancel()

    def _is_needed(self, upto: int) -> bool:
        changed = self._leader_epochs.changed or bool(self._unsynced)
        return upto > self.recovery_point or changed

    def _new_job(self, upto: int) -> FlushJob:
        epochs_path = self._write_epochs() if self._leader_epochs.changed else ""
        new_paths, self._unsynced = self._unsynced, []
        return FlushJob(
            self._resources.files,
            self._directory,
            upto,
            self._segments.covering(self.recovery_point, upto),
            new_paths,
            is_new_directory=self._is_new_directory,
            epochs_path=epochs_path,
        )

    def _write_epochs(self) -> str:
        path = f"{self._directory}/{LEADER_EPOCHS}{TEMPORARY}"
        file = self._resources.pool.open(path, create=True, writable=True)
        file.truncate(0)
        file.pwritev([self._leader_epochs.encode()], 0)
        self._leader_epochs.mark_saved()
        return path

    def _synced(self, job: FlushJob, result: OSError | None) -> None:
        if job is self._job and result is None:
            try:
                if job.put_epochs():
                    self._resources.background.submit(
                        job.sync_directory, lambda result: self._done(job, result)
                    )
                    return
            except OSError as error:
                result = error
        self._done(job, result)

    def _done(self, job: FlushJob, result: OSError | None) -> None:
        is_current = job is self._job
        if result is not None and (is_current or not isinstance(result, FileNotFoundError)):
            # The kernel reports lost writes once: even a cancelled job must pass that on.
            self.cancel()
            self._tell(result)
            return
        if not is_current:  # truncated or deleted meanwhile: its files may be gone
            return
        self._job = None
        self.finish(job)
        if job.again <= job.upto:
            self._tell(None)
            return
        try:
            self.start(job.again)
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError | None) -> None:
        """Say that all flushes in the background are over, or that one failed."""
        if self.on_flush is not None:
            self.on_flush(error)
        elif error is not None:
            self._resources.on_error(self._directory, error)

    def finish(self, job: FlushJob) -> None:
        """Move the recovery point: everything the job covers is on disk."""
        if job.new_paths:
            self._is_new_directory = False
        self.flushed_ms = self._resources.clock.wall_ms()
        self.set_recovery_point(max(self.recovery_point, job.upto))

    def _give_up(self, job: FlushJob) -> None:
        """Have the next flush do everything again: nothing is known to be on disk."""
        self._unsynced[:0] = job.new_paths
        if job.epochs_path:
            self._leader_epochs.mark_unsaved()
