"""One log directory: its checkpoints and its clean-shutdown marker.

Checkpoints name partitions, not topic ids. So an entry must be removed from disk before a new
log of the same name begins: it would hide that log's records, or their damage. That is why a
checkpoint is written in the background, but renamed on the loop, and only if it is up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.log.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from ottla.log.log import Log
from ottla.log.startup.open_log import Checkpoint
from ottla.log.store.checkpoints import (
    encode_offsets,
    read_offsets,
)
from ottla.model.ids import TopicPartition
from ottla.ports import Files, read_file, write_file_atomically

_NEXT = ".next"

CHECKS_WITHOUT_METADATA: Final = 12
"""How many checks in a row may find nothing new but in the metadata log, before that is written.

That log grows in an idle cluster too, and the checkpoints name all partitions. Recovery just reads
a little more of it.
"""

Offsets = dict[TopicPartition, int]

Row = tuple[int, int, int, int]
"""Recovery point, high watermark, log start offset, and the offset up to which it was cleaned."""

_row_of: Callable[[Log], Row] = attrgetter(
    "flush_state.recovery_point", "high_watermark", "log_start_offset", "cleaned_upto"
)


class CheckpointJob:
    """New checkpoints that are being written."""

    __slots__ = ("_files", "_path", "contents", "state", "then")

    def __init__(
        self, files: Files, path: str, contents: dict[str, Offsets], state: State | None = None
    ) -> None:
        self._files = files
        self._path = path
        self.contents = contents
        self.state = state
        """What the logs were like, if all checkpoints are up to date after this job."""
        self.then: list[Callable[[], None]] = []
        """Who is told when it is done, or has failed."""

    def write(self) -> None:
        """Write them beside the old ones and force them to disk; off the loop."""
        for name, offsets in self.contents.items():
            file = self._files.open(f"{self._path}/{name}{_NEXT}", create=True, writable=True)
            file.truncate(0)
            file.pwritev([encode_offsets(offsets)], 0)
            file.sync()
            file.close()

    def put(self) -> None:
        """Replace the old ones; on the loop."""
        for name in self.contents:
            self._files.rename(f"{self._path}/{name}{_NEXT}", f"{self._path}/{name}")

    def sync(self) -> None:
        """Force the new names to disk; off the loop."""
        self._files.sync_dir(self._path)


class State(NamedTuple):
    """What checkpoints are made of, taken and compared without a Python loop over the logs."""

    logs: Sequence[Log]
    """The logs of the directory but the metadata log; the same object as long as they are."""
    rows: list[Row]
    unopened: tuple[TopicPartition, ...]

    def is_same(self, other: State) -> bool:
        """Return True if nothing has changed between the two."""
        return (
            self.logs is other.logs and self.rows == other.rows and self.unopened == other.unopened
        )


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
        """Write the checkpoints, each only if it changed."""
        self._write(self._changed(self._state_of(logs), metadata_log))

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
        self, logs: Sequence[Log], metadata_log: Log | None
    ) -> CheckpointJob | None:
        """Return a job that writes them; None if nothing changed or a job is running.

        `logs` has the logs in this directory, and is another object when they are others.
        """
        if self._job is not None:
            return None
        state = self._state_of(logs)
        if self._state is not None and self._state.is_same(state):
            self._checks += 1
            if self._checks < CHECKS_WITHOUT_METADATA:
                return None
        self._checks = 0
        changed = self._changed(state, metadata_log)
        if not changed:
            self._state = state
            return None
        self._job = CheckpointJob(self._files, self.path, changed, state)
        return self._job

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
            self._write({name: kept[name] for name in stale})

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

    def _state_of(self, logs: Sequence[Log]) -> State:
        return State(logs, list(map(_row_of, logs)), tuple(self.unopened))

    def _changed(self, state: State, metadata_log: Log | None) -> dict[str, Offsets]:
        """Return the checkpoints that differ from those written last."""
        logs, rows = list(state.logs), state.rows
        if metadata_log is not None:
            logs.append(metadata_log)
            rows = [*rows, _row_of(metadata_log)]
        partitions = [log.topic_partition for log in logs]
        recovery_points = dict(zip(partitions, [row[0] for row in rows], strict=True))
        high_watermarks = dict(zip(partitions, [row[1] for row in rows], strict=True))
        starts = {
            log.topic_partition: row[2]
            for log, row in zip(logs, rows, strict=True)
            if (row[2] and row[2] > log.segments.base_offsets[0])
            or log.config.remote_storage_enable
        }
        cleaned = {
            partition: row[3] for partition, row in zip(partitions, rows, strict=True) if row[3]
        }
        for partition, checkpoint in self.unopened.items():
            recovery_points[partition] = checkpoint.recovery_point
            high_watermarks[partition] = checkpoint.high_watermark
            if checkpoint.log_start_offset:
                starts[partition] = checkpoint.log_start_offset
            if checkpoint.cleaned_upto:
                cleaned[partition] = checkpoint.cleaned_upto
        contents = {
            RECOVERY_POINTS: recovery_points,
            LOG_START_OFFSETS: starts,
            HIGH_WATERMARKS: high_watermarks,
        }
        if cleaned or CLEANER_OFFSETS in self._written:
            contents[CLEANER_OFFSETS] = cleaned
        return {name: c for name, c in contents.items() if self._written.get(name) != c}

    def _write(self, contents: dict[str, Offsets]) -> None:
        """Replace checkpoints, and wait for the disk."""
        self._state = None
        if contents:
            job = CheckpointJob(self._files, self.path, contents)
            job.write()
            job.put()
            self._written.update(contents)
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
