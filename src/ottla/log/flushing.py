"""Forcing a log to disk, at once or off the loop, and moving the recovery point after it.

Order: the segments' bytes, the indexes of rolled segments, the newest snapshot, the leader
epochs (written beside, synced, renamed), the directory; then the recovery point. The active
segment's indexes are left out: recovery checks them and needs no more than their order.

In the background only syncs happen. Every change of a file is made on the loop, so a job
that finds its log changed meanwhile has nothing to take back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.names import INDEX, LEADER_EPOCHS, SNAPSHOT, TIME_INDEX, offset_name
from ottla.ports import File, write_file_atomically

if TYPE_CHECKING:
    from ottla.log.log import Log


class FlushJob:
    """One flush under way; `again` asks for another one after it, up to that offset."""

    __slots__ = ("_epochs_path", "_files", "_generation", "_log", "again", "upto")

    def __init__(self, log: Log, upto: int) -> None:
        self._log = log
        self._generation = log.generation
        self.upto = upto
        self.again = -1
        self._files = _files_to_sync(log, upto)
        self._epochs_path = ""
        if log.leader_epochs.changed:
            self._write_epochs()

    def sync(self) -> None:
        """Off the loop: force the files to disk."""
        for file in self._files:
            file.sync()
        if not self._epochs_path and self._log.has_new_names:
            self._log.resources.files.sync_dir(self._log.directory)

    def synced(self, result: OSError | None) -> None:
        """On the loop again: put the epochs in place, or finish."""
        log = self._log
        if result is not None or not self._epochs_path or log.generation != self._generation:
            self._finish(result)
            return
        files = log.resources.files
        files.rename(self._epochs_path, log.path(LEADER_EPOCHS))
        log.resources.background.submit(lambda: files.sync_dir(log.directory), self._finish)

    def _write_epochs(self) -> None:
        log = self._log
        log.leader_epochs.changed = False
        self._epochs_path = log.path(LEADER_EPOCHS + ".flush")
        file = log.resources.files.open(self._epochs_path, create=True, writable=True)
        file.truncate(0)
        file.pwritev([log.leader_epochs.encode()], 0)
        self._files.append(file)

    def _finish(self, result: OSError | None) -> None:
        log = self._log
        if log.flush_job is self:
            log.flush_job = None
        if log.generation != self._generation:
            return
        if result is not None:
            log.resources.on_error(log, result)
            return
        log.has_new_names = False
        log.flushed_ms = log.resources.clock.wall_ms()
        log.recovery_point = max(log.recovery_point, min(self.upto, log.committed_end))
        if self.again > self.upto:
            start(log, self.again)


def start(log: Log, upto: int) -> None:
    """Flush in the background; one job at a time."""
    if not _is_needed(log, upto):
        return
    if log.flush_job is not None:
        log.flush_job.again = max(log.flush_job.again, upto)
        return
    job = log.flush_job = FlushJob(log, upto)
    log.resources.background.submit(job.sync, job.synced)


def flush(log: Log, upto: int) -> None:
    """Flush now."""
    upto = min(upto, log.committed_end)
    if not _is_needed(log, upto):
        return
    for file in _files_to_sync(log, upto):
        file.sync()
    if log.leader_epochs.changed:
        content = log.leader_epochs.encode()
        write_file_atomically(log.resources.files, log.path(LEADER_EPOCHS), content)
        log.leader_epochs.changed = False
    elif log.has_new_names:
        log.resources.files.sync_dir(log.directory)
    log.has_new_names = False
    log.flushed_ms = log.resources.clock.wall_ms()
    log.recovery_point = max(log.recovery_point, upto)


def _is_needed(log: Log, upto: int) -> bool:
    return upto > log.recovery_point or log.leader_epochs.changed or log.has_new_names


def _files_to_sync(log: Log, upto: int) -> list[File]:
    """The files that hold what is not on disk yet below an offset."""
    files = log.resources.files
    found: list[File] = []
    for segment in log.segments[log.segment_index(log.recovery_point) :]:
        if segment.base_offset > upto or (segment.base_offset == upto and found):
            break
        found.append(segment.file)
        if not segment.is_active:
            found += [files.open(segment.path(suffix)) for suffix in (INDEX, TIME_INDEX)]
    if log.has_new_names and log.snapshots:
        found.append(files.open(log.path(offset_name(log.snapshots[-1], SNAPSHOT))))
    return found
