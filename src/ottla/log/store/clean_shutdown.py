"""Close many logs with two waits for the disk instead of eight for each.

Closing one log takes about eight syncs: segment, indexes, snapshot, leader epochs, directories. A
log whose newest segments were not forced to disk yet takes four for each of them. For 10,000 logs
or segments that is half a minute, and much more on a busy disk. So if there are many files, all
logs write theirs first, and then everything on the volume is forced to disk at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.log.damage import DamagedLog
from ottla.log.flush import FlushJob
from ottla.log.log import Log
from ottla.ports import Files

MANY = 50
"""From this many logs on, the whole volume is forced to disk, with what others wrote to it."""

MANY_FILES = 400
"""The same for the files of all logs together: one log may have thousands."""


def close_logs(
    files: Files,
    directory: str,
    logs: Iterable[Log],
    on_damage: Callable[[Log, DamagedLog], None],
) -> None:
    """Close the logs of a directory as `Log.close` does. Raise OSError if the disk fails."""
    jobs: list[tuple[Log, FlushJob]] = []
    closed: list[Log] = []
    for log in logs:
        try:
            job = log.prepare_close()
        except DamagedLog as error:
            on_damage(log, error)
            continue
        closed.append(log)
        if job is not None:
            jobs.append((log, job))
    count = sum(job.file_count for _, job in jobs)
    is_much = len(jobs) >= MANY or count >= MANY_FILES
    if is_much and files.sync_volume(directory):
        _finish(files, directory, jobs)
    else:
        for log, job in jobs:
            log.flush_state.run(job)
    for log in closed:
        log.abandon()


def _finish(files: Files, directory: str, jobs: list[tuple[Log, FlushJob]]) -> None:
    """Put the leader epochs in place, now that all files are on disk."""
    has_renamed = False
    for _, job in jobs:
        has_renamed |= job.put_epochs()
    if has_renamed and not files.sync_volume(directory):
        raise OSError(f"{directory} cannot be forced to disk")
    for log, job in jobs:
        log.flush_state.finish(job)
