"""One log directory: its checkpoints and its clean-shutdown marker.

Checkpoints name partitions, not topic ids. So an entry must be removed from disk before a new
log of the same name begins: it would hide that log's records, or their damage. That is why a
checkpoint is written in the background, but renamed on the loop, and only if it is up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Sequence
from typing import Final

from ottla.log.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from ottla.log.log import Log
from ottla.log.startup.open_log import Checkpoint
from ottla.log.store.checkpoint_job import CheckpointJob, Offsets, State, state_of
from ottla.log.store.checkpoints import read_offsets
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps, run_to_end
from ottla.ports import Files, read_file, write_file_atomically

CHECKS_WITHOUT_METADATA: Final = 12
"""How many checks in a row may find nothing new but in the metadata log, before that is written.

That log grows in an idle cluster too, and the checkpoints name all partitions. Recovery just reads
a little more of it.
"""


class LogDirectory:
    """A directory that holds the logs of partitions."""

    __slots__ = (
        "_checks",
        "_files",
        "_job",
        "_state",
        "_written",
        "clean_epoch",
        "path",
        "unopened",
        "was_clean",
    )

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._state: State | None = None
        """What the logs were like when the checkpoints were last up to date."""
        self._checks = 0
        """How many checks in a row found nothing new, without looking at the metadata log."""
        self._written: dict[str, Offsets] = {}
        self._job: CheckpointJob | None = None
        self.path = path
        self.unopened: dict[TopicPartition, Checkpoint] = {}
        """Logs that could not be opened because the disk was full, with their checkpoints."""
        self.was_clean = False
        self.clean_epoch = -1
        """The broker epoch in the clean-shutdown marker that was found; -1 if there was none."""

    def begin(self, notes: list[str]) -> Callable[[TopicPartition], Checkpoint]:
        """Read the checkpoints and remove the clean-shutdown marker."""
        self._files.make_dirs(self.path)
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.was_clean = self._files.exists(marker)
        if self.was_clean:
            self.clean_epoch = _epoch_in(read_file(self._files, marker))
            self._files.unlink(marker)
            self._files.sync_dir(self.path)
        recovery_points = self._read(RECOVERY_POINTS, notes)
        log_starts = self._read(LOG_START_OFFSETS, notes)
        high_watermarks = self._read(HIGH_WATERMARKS, notes)
        cleaned = self._read(CLEANER_OFFSETS, notes)

        def checkpoint_of(partition: TopicPartition) -> Checkpoint:
            return Checkpoint(
                self.was_clean,
                recovery_points.get(partition, 0),
                log_starts.get(partition, 0),
                high_watermarks.get(partition, 0),
                cleaned.get(partition, 0),
            )

        return checkpoint_of

    def write_checkpoints(self, logs: Sequence[Log], metadata_log: Log | None) -> None:
        """Write the checkpoints, each only if it changed, and wait for the disk."""
        job = CheckpointJob(self._files, self.path)
        run_to_end(self._collect(job, run_to_end(state_of(logs, self.unopened)), metadata_log))
        self._write(job)

    @property
    def running_job(self) -> CheckpointJob | None:
        """The checkpoints that are being written."""
        return self._job

    def remembers(self, partitions: Collection[TopicPartition]) -> bool:
        """Return True if the checkpoints have one of these partitions, or will have it soon."""
        job = {} if self._job is None else self._job.contents
        return not all(
            offsets.keys().isdisjoint(partitions)
            for offsets in (*self._written.values(), *job.values())
        )

    def begin_checkpoint(
        self,
        logs: Sequence[Log],
        metadata_log: Log | None,
        is_current: Callable[[Log], bool],
    ) -> Steps[CheckpointJob | None]:
        """Return a job that is ready to be written; None if nothing changed or a job is running.

        `logs` has the logs in this directory, and is another object when they are others. One of
        them that is not `is_current` any more has been deleted meanwhile.
        """
        if self._job is not None:
            return None
        job = self._job = CheckpointJob(self._files, self.path)
        state = yield from state_of(logs, self.unopened)
        is_same = self._state is not None and self._state.is_same(state)
        self._checks = self._checks + 1 if is_same else 0
        if not is_same or self._checks >= CHECKS_WITHOUT_METADATA:
            self._checks = 0
            yield from self._collect(job, state, metadata_log, is_current)
            if self._job is job and job.contents:
                return job
            if self._job is job:
                self._state = state
        self.end_checkpoint(job)
        return None

    def _collect(
        self,
        job: CheckpointJob,
        state: State,
        metadata_log: Log | None,
        is_current: Callable[[Log], bool] = lambda log: True,
    ) -> Steps[None]:
        yield from job.collect(state, metadata_log, self.unopened, is_current)
        yield from job.drop_unchanged(self._written)
        yield from job.encode()

    def put_checkpoint(self, job: CheckpointJob) -> bool:
        """Replace the checkpoints by those of the job; return False if it is out of date."""
        if self._job is not job:
            return False
        job.put()
        self._written.update(job.contents)
        self._state = job.state
        return True

    def end_checkpoint(self, job: CheckpointJob) -> None:
        """End the job, whether it failed or not."""
        if self._job is job:
            self._job = None
        for tell in job.then:
            tell()

    def forget(self, partition: TopicPartition, logs: Container[TopicPartition]) -> None:
        """Remove a partition from the checkpoints before a log of its name is created.

        `LogStore.forget` has done so in the background, unless that failed. All partitions that
        are gone are removed with it. So the checkpoints are written once, and not for each
        partition, if a topic is created again.
        """
        job = self._job
        if job is not None and any(partition in offsets for offsets in job.contents.values()):
            self._job = None
        stale = [name for name, offsets in self._written.items() if partition in offsets]
        if stale:
            kept = {
                name: {p: o for p, o in offsets.items() if p in logs or p in self.unopened}
                for name, offsets in self._written.items()
            }
            again = CheckpointJob(self._files, self.path, {name: kept[name] for name in stale})
            run_to_end(again.encode())
            self._write(again)

    def mark_clean(self, broker_epoch: int) -> None:
        """Write the marker that says that all logs were closed properly."""
        content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        write_file_atomically(self._files, f"{self.path}/{CLEAN_SHUTDOWN}", content.encode())

    def _read(self, name: str, notes: list[str]) -> Offsets:
        path = f"{self.path}/{name}"
        try:
            offsets = read_offsets(self._files, path)
        except ValueError as error:
            notes.append(f"{path}: {error}; treated as empty")
            return {}
        if self._files.exists(path):
            self._written[name] = dict(offsets)
        return offsets

    def _write(self, job: CheckpointJob) -> None:
        """Replace checkpoints, and wait for the disk."""
        self._state = None
        if job.contents:
            job.write()
            job.put()
            self._written.update(job.contents)
            job.sync()


def read_broker_epoch(files: Files, directory: str) -> int | None:
    """Return the broker epoch of the clean-shutdown marker, None without one (KIP-966)."""
    from json import loads

    try:
        epoch = loads(read_file(files, f"{directory}/{CLEAN_SHUTDOWN}"))["brokerEpoch"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return epoch if isinstance(epoch, int) else None


def _epoch_in(marker: bytes) -> int:
    """Return the broker epoch in a clean-shutdown marker. Kafka's older ones are empty."""
    found = re.search(rb'"brokerEpoch"\s*:\s*(\d+)', marker)
    return -1 if found is None else int(found[1])
