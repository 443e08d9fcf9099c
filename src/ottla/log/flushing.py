"""Forcing a log to disk, at once or off the loop, and moving the recovery point after it.

Order: the segments' bytes, the indexes of rolled segments, new snapshots and other new files,
the leader epochs (written beside, synced, renamed), the directory; then the recovery point.
The active segment's indexes are left out: recovery checks them and needs no more than their
order.

In the background only syncs happen. Every change of a file is made on the loop, so a job that
finds its log changed meanwhile has nothing to take back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.names import INDEX, LEADER_EPOCHS, LOG, TEMPORARY, TIME_INDEX

if TYPE_CHECKING:
    from ottla.log.log import Log


class FlushJob:
    """One flush under way; `again` asks for another one after it, up to that offset."""

    __slots__ = ("_epochs_path", "_log", "_new", "_paths", "again", "upto")

    def __init__(self, log: Log, upto: int) -> None:
        self._log = log
        self.upto = min(upto, log.committed_end)
        self.again = -1
        self._paths = dict.fromkeys([*_segment_paths(log, self.upto), *log.unsynced])
        self._epochs_path = ""
        if log.leader_epochs.changed:
            self._write_epochs()
        self._new, log.unsynced = log.unsynced, []

    def sync(self) -> None:
        """Force the files to disk; off the loop.

        Each is opened for as long as it takes: jobs may have to wait in great numbers.
        """
        for path in self._paths:
            try:
                file = self._log.resources.files.open(path)
            except FileNotFoundError:  # removed with its segment; its name goes with the directory
                continue
            file.sync()
            file.close()
        if self._new and not self._epochs_path:
            self.sync_directory()

    def sync_directory(self) -> None:
        """Force the names to disk, the directory's own if it is new; off the loop."""
        log = self._log
        log.resources.files.sync_dir(log.directory)
        if log.is_new:
            log.resources.files.sync_dir(log.directory.rpartition("/")[0])

    def put_epochs(self) -> bool:
        """Put the synced epochs in place; whether the directory is to be synced after it."""
        if not self._epochs_path:
            return False
        self._log.resources.files.rename(self._epochs_path, self._log.path(LEADER_EPOCHS))
        return True

    def is_current(self) -> bool:
        """Whether nobody has cancelled the job."""
        return self._log.flush_job is self

    def finish(self) -> None:
        """All is on disk: move the recovery point."""
        log = self._log
        log.is_new = log.is_new and not self._new
        log.flushed_ms = log.resources.clock.wall_ms()
        log.recovery_point = max(log.recovery_point, self.upto)

    def give_up(self) -> None:
        """Nothing is known to be on disk: it has to be done again."""
        self._log.unsynced[:0] = self._new
        self._log.leader_epochs.changed |= bool(self._epochs_path)

    def _write_epochs(self) -> None:
        log = self._log
        path = log.path(LEADER_EPOCHS + TEMPORARY)
        file = log.resources.pool.open(path, create=True, writable=True)
        file.truncate(0)
        file.pwritev([log.leader_epochs.encode()], 0)
        log.leader_epochs.changed = False
        self._epochs_path = path
        self._paths[path] = None


def flush(log: Log, upto: int) -> None:
    """Flush now."""
    cancel(log)
    if not _is_needed(log, upto):
        return
    job = FlushJob(log, upto)
    try:
        job.sync()
        if job.put_epochs():
            job.sync_directory()
    except OSError:
        job.give_up()
        raise
    job.finish()


def start(log: Log, upto: int) -> None:
    """Flush in the background, one job at a time; OSError if it cannot be begun."""
    if log.flush_job is not None:
        log.flush_job.again = max(log.flush_job.again, upto)
    elif _is_needed(log, upto):
        job = log.flush_job = FlushJob(log, upto)
        log.resources.background.submit(job.sync, lambda result: _synced(log, job, result))


def cancel(log: Log) -> None:
    """Forget the flush under way, if any: what it covers counts as not flushed."""
    if log.flush_job is not None:
        log.flush_job.give_up()
        log.flush_job = None


def _synced(log: Log, job: FlushJob, result: OSError | None) -> None:
    if job.is_current() and result is None:
        try:
            if job.put_epochs():
                log.resources.background.submit(
                    job.sync_directory, lambda result: _finished(log, job, result)
                )
                return
        except OSError as error:
            result = error
    _finished(log, job, result)


def _finished(log: Log, job: FlushJob, result: OSError | None) -> None:
    if result is not None and (job.is_current() or not isinstance(result, FileNotFoundError)):
        # The kernel tells of lost writes once: even a job that was overtaken must pass it on.
        cancel(log)
        _tell(log, result)
        return
    if not job.is_current():  # truncated or deleted meanwhile: its files may be gone
        return
    log.flush_job = None
    job.finish()
    if job.again <= job.upto:
        _tell(log, None)
        return
    try:
        start(log, job.again)
    except OSError as error:
        _tell(log, error)


def _tell(log: Log, error: OSError | None) -> None:
    """Say that all flushes in the background are over, or that one failed."""
    if log.on_flush is not None:
        log.on_flush(error)
    elif error is not None:
        log.resources.on_error(log, error)


def _is_needed(log: Log, upto: int) -> bool:
    return upto > log.recovery_point or log.leader_epochs.changed or bool(log.unsynced)


def _segment_paths(log: Log, upto: int) -> list[str]:
    """The files of segments that hold what is not on disk yet below an offset."""
    found: list[str] = []
    if upto <= log.recovery_point:
        return found
    for segment in log.segments[log.segment_index(log.recovery_point) :]:
        if segment.base_offset >= upto:
            break
        found.append(segment.path(LOG))
        if not segment.is_active:
            found += (segment.path(INDEX), segment.path(TIME_INDEX))
    return found
