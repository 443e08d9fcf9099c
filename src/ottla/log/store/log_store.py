"""All logs of a broker, over several log directories.

A directory goes offline at a storage error. Its logs are then removed from the store, and its
partitions are in `offline_partitions`; the other directories are not affected. A damaged file is
no such error: only its log goes offline. A full disk and too many open files are none either:
writes fail until there is room again. A log that could not be recovered because the disk was full,
and one that is damaged, is `unopened` in its directory, which gets no clean-shutdown marker.

The periodic jobs are steps, because there may be tens of thousands of logs. The node's timers begin
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.log.damage import DamagedLog
from ottla.log.file_names import DELETE_DIR, STRAY_DIR, retired_directory
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.startup.open_log import Checkpoint, create_log, open_log
from ottla.log.store import inventory
from ottla.log.store.checkpoint_job import CheckpointJob
from ottla.log.store.dropped_logs import DroppedLogs
from ottla.log.store.log_directory import LogDirectory
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from ottla.model.steps import Steps, Wait
from ottla.ports import Background, Clock, Files, Random

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig

DEFAULT_PRODUCER_EXPIRATION_MS = 86_400_000

_SEGMENTS_AT_A_TIME = 8
_SEGMENT_WORK = 6
"""The cost of deleting a segment, relative to that of checking a log."""

_PRODUCERS_AT_A_TIME = 5000
"""About a millisecond of checking which producers have expired."""
_LOG_WORK = 20
"""The cost of a log without any, relative to that of checking a producer."""

_ENOUGH_WORK = 50
"""About two milliseconds of work: retention must not hold the loop longer."""

_CHECKPOINT_ATTEMPTS = 2
_LOGS_A_STEP = 500


class LogStore:
    """The logs of one broker by partition."""

    def __init__(
        self,
        files: Files,
        log_dirs: Sequence[str],
        *,
        background: Background,
        clock: Clock,
        random: Random,
        pool: FilePool,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
    ) -> None:
        self.resources = Resources(files, pool, background, clock, random)
        self.resources.on_error = self._background_failed
        self.resources.trash.on_error = lambda path, error: self.notes.append(
            f"{path}: cannot be removed: {error}"
        )
        self.directories = {path: LogDirectory(files, path) for path in log_dirs}
        """The directories that are online."""
        self.offline_dirs: dict[str, OSError] = {}
        self.offline_partitions: set[TopicPartition] = set()
        self.interrupted_moves: dict[TopicPartition, str] = {}
        """Logs that were moving when the last process ended, and to which directories."""
        self.preferred: dict[TopicPartition, str] = {}
        """Directories for logs that do not exist yet, if somebody has asked for one."""
        self.notes = self.resources.notes
        """Messages for the operator. Whoever logs them clears the list."""
        self.on_offline: Callable[[str, OSError, list[TopicPartition]], None] = (
            lambda path, error, partitions: None
        )
        self.metadata_log: Log | None = None
        self._logs: dict[TopicPartition, Log] = {}
        self._held: dict[str, dict[TopicPartition, Log]] = {path: {} for path in self.directories}
        """The logs of each directory."""
        self._listed: dict[str, list[Log]] = {}
        """The same, listed when they are needed, until one comes or goes."""
        self._dropped = DroppedLogs()
        self._begun: dict[str, Callable[[TopicPartition], Checkpoint]] = {}
        self.producer_expiration_ms = producer_expiration_ms

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None if there is none or it is offline."""
        return self._logs.get(partition)

    # Loading

    def open_metadata_log(self, config: LogConfig) -> Log:
        """Open or create the log of cluster metadata, in the first directory; before `load`."""
        partition = TopicPartition(METADATA_TOPIC, 0)
        directory = next(iter(self.directories.values()))
        checkpoint_of = self.begin(directory)
        path = f"{directory.path}/{partition}"
        if self.resources.files.exists(path):
            checkpoint = checkpoint_of(partition)
            log = open_log(
                self.resources, path, partition, config, checkpoint=checkpoint, notes=self.notes
            )
        else:
            log = create_log(self.resources, path, partition, METADATA_TOPIC_ID, config)
        self.metadata_log = log
        return log

    def begin(self, directory: LogDirectory) -> Callable[[TopicPartition], Checkpoint]:
        """Read the checkpoints of a directory, once."""
        checkpoint_of = self._begun.get(directory.path)
        if checkpoint_of is None:
            checkpoint_of = self._begun[directory.path] = directory.begin(self.notes)
        return checkpoint_of

    def load(
        self,
        config_for: Callable[[TopicPartition], LogConfig],
        expected: Mapping[TopicPartition, bytes] | None = None,
    ) -> None:
        """Open every log in every directory; a directory that fails goes offline.

        `expected` are the partitions this broker has, with their topic ids. Those that are, or may
        be, in a directory that failed are offline: they must not be created again.
        """
        inventory.load(self, config_for, expected or {})

    def open_late(self, partition: TopicPartition, config: LogConfig) -> Log | None:
        """Open a log that `load` could not open on a full disk; None if there is none.

        Raise OSError if it still cannot be opened.
        """
        for directory in list(self.directories.values()):
            checkpoint = directory.unopened.get(partition)
            if checkpoint is None:
                continue
            path = f"{directory.path}/{partition}"
            try:
                log = open_log(
                    self.resources, path, partition, config, checkpoint=checkpoint, notes=self.notes
                )
            except DamagedLog as error:
                self.note_damage(partition, path, error)
                raise
            except OSError as error:
                self._handle(directory.path, error)
                raise
            del directory.unopened[partition]
            self.add(log)
            return log
        return None

    def add(self, log: Log) -> None:
        """Start managing this log."""
        directory = parent_of(log)
        self._logs[log.topic_partition] = self._held[directory][log.topic_partition] = log
        self._listed.pop(directory, None)

    def drop(self, log: Log) -> None:
        """Stop managing this log. Its files are kept."""
        directory = parent_of(log)
        del self._logs[log.topic_partition], self._held[directory][log.topic_partition]
        self._listed.pop(directory, None)
        self._dropped.add(log)

    # Creating and deleting

    def create(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
        """Create a log in the directory asked for, else in the one with the fewest logs.

        Raise KAFKA_STORAGE_ERROR if no directory is online.
        """
        assert partition not in self._logs, f"{partition} exists"
        if not self.directories:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "No log directory is online")
        asked = self.preferred.pop(partition, "")
        if asked in self.directories:
            directory = asked
        else:
            directory = min(self.directories, key=lambda path: len(self._held[path]))
        path = f"{directory}/{partition}"
        try:
            self.directories[directory].forget(partition, self._logs)
            log = create_log(self.resources, path, partition, topic_id, config)
        except OSError as error:
            self._remove_unfinished(path)
            self._handle(directory, error)
            raise
        self.add(log)
        self.offline_partitions.discard(partition)
        return log

    def _remove_unfinished(self, path: str) -> None:
        try:
            self.resources.files.remove_tree(path)
        except OSError as error:
            self.notes.append(f"{path}: cannot be removed: {error}")

    def delete(self, partition: TopicPartition) -> None:
        """Delete a log: rename its directory now and delete it after file.delete.delay.ms."""
        self.offline_partitions.discard(partition)
        log = self._logs.get(partition)
        if log is None:
            self._delete_unopened(partition)
            return
        self.drop(log)
        path = self._retire(log, DELETE_DIR)
        if path is not None:
            due_ms = self.resources.clock.wall_ms() + log.config.file_delete_delay_ms
            self.resources.trash.add_directory(path, due_ms)

    def replace(self, log: Log, future: Log, path: str) -> Log:
        """Let a closed log take the place of another one of its partition, in the directory `path`.

        Raise OSError if the new one cannot be put there; the old one is gone then.
        """
        partition, directory = log.topic_partition, parent_path(path)
        self.directories[directory].forget(partition, self._logs)
        self.drop(log)
        old = self._retire(log, DELETE_DIR)
        self.resources.files.rename(future.directory, path)
        self.resources.files.sync_dir(directory)
        if old is not None:
            due_ms = self.resources.clock.wall_ms() + log.config.file_delete_delay_ms
            self.resources.trash.add_directory(old, due_ms)
        checkpoint = Checkpoint(
            True, future.log_end_offset, future.log_start_offset, future.high_watermark
        )
        moved = open_log(
            self.resources, path, partition, log.config, checkpoint=checkpoint, notes=self.notes
        )
        self.add(moved)
        return moved

    def discard(self, future: Log) -> None:
        """Delete a log that is not in the store: the copy of a move that was given up."""
        path = self._retire(future, DELETE_DIR)
        if path is not None:
            self.resources.trash.add_directory(path, self.resources.clock.wall_ms())

    def directory_failed(self, directory: str, error: OSError) -> None:
        """Take a directory offline, unless the error is only a full disk."""
        self._handle(directory, error)

    def _delete_unopened(self, partition: TopicPartition) -> None:
        for directory in list(self.directories.values()):
            if directory.unopened.pop(partition, None) is not None:
                path = self._rename(f"{directory.path}/{partition}", partition, DELETE_DIR)
                if path is not None:
                    self.resources.trash.add_directory(path, self.resources.clock.wall_ms())

    def set_aside(self, partition: TopicPartition) -> None:
        """Rename a log that belongs to no partition of this broker to `-stray`."""
        log = self._logs[partition]
        self.drop(log)
        self.retire_stray(log)

    def retire_stray(self, log: Log) -> None:
        """Rename the directory of a log that no topic has. It is not deleted."""
        path = self._retire(log, STRAY_DIR)
        if path is not None:
            self.notes.append(f"{log.directory}: no topic has it; renamed to {path}")

    def _retire(self, log: Log, kind: str) -> str | None:
        """Close a log and rename its directory; return the new path, None if that fails."""
        log.abandon()
        return self._rename(log.directory, log.topic_partition, kind)

    def _rename(self, directory: str, partition: TopicPartition, kind: str) -> str | None:
        parent = directory.rpartition("/")[0]
        name = retired_directory(partition, self.resources.random.uuid(), kind)
        path = f"{parent}/{name}"
        try:
            self.resources.files.rename(directory, path)
        except OSError as error:
            self.notes.append(f"{directory}: cannot be renamed: {error}")
            self._handle(parent, error)
            return None
        return path

    # Errors

    def handle_error(self, log: Log, error: OSError) -> None:
        """Take the directory of a log offline, unless the error is only a full disk.

        If the log is damaged, take only this log offline: the disk works.
        """
        if isinstance(error, DamagedLog):
            self._take_log_offline(log, error)
        else:
            self._handle(parent_of(log), error)

    def _background_failed(self, path: str, error: OSError) -> None:
        """Handle an error of work in the background on the log in the directory `path`."""
        if isinstance(error, DamagedLog):
            log = next((log for log in self if log.directory == path), None)
            if log is not None:
                self._take_log_offline(log, error)
        else:
            self._handle(parent_path(path), error)

    def _take_log_offline(self, log: Log, error: DamagedLog) -> None:
        """Stop using a damaged log. Its files stay, and the next start opens it again."""
        partition = log.topic_partition
        if self._logs.get(partition) is not log:
            return
        directory = self.directories[parent_of(log)]
        directory.unopened[partition] = Checkpoint(
            False,
            log.recovery_point,
            log.log_start_offset,
            log.high_watermark,
            log.cleaned_upto,
        )
        self.drop(log)
        log.abandon()
        self.note_damage(partition, log.directory, error)
        self.on_offline(log.directory, error, [partition])

    def note_damage(self, partition: TopicPartition, path: str, error: DamagedLog) -> None:
        """Report a damaged log, and do not create it again."""
        self.offline_partitions.add(partition)
        self.notes.append(
            f"{partition} is offline, other partitions are not affected: {error};"
            f" restore {path} from a copy, or remove it and lose its records,"
            " and restart the broker"
        )

    def _handle(self, directory: str, error: OSError) -> None:
        if error.errno not in inventory.REFUSED:
            self.take_offline(directory, error)

    def take_offline(self, path: str, error: OSError) -> None:
        """Stop using a directory and all logs in it."""
        directory = self.directories.pop(path, None)
        if directory is None:
            return
        self.offline_dirs[path] = error
        self.notes.append(f"{path}: offline after {error}")
        lost = list(self._held[path].values())
        for log in lost:
            self.drop(log)
            log.abandon()
        partitions = [*(log.topic_partition for log in lost), *directory.unopened]
        self.offline_partitions.update(partitions)
        self.on_offline(path, error, partitions)

    # Periodic jobs

    def run_retention(self, now_ms: int) -> Iterator[int]:
        """Delete old segments of all logs, a few with each step; yield how many.

        The caller does other work between steps: logs may be created and deleted then.
        """
        deleted = work = 0
        for log in list(self):
            count = -1
            while count and self._logs.get(log.topic_partition) is log:
                count = self._delete_some(log, now_ms)
                deleted += count
                work += 1 + count * _SEGMENT_WORK
                if work >= _ENOUGH_WORK:
                    yield deleted
                    deleted = work = 0
        yield deleted

    def _delete_some(self, log: Log, now_ms: int) -> int:
        try:
            return log.delete_old_segments(now_ms, _SEGMENTS_AT_A_TIME)
        except OSError as error:
            self.handle_error(log, error)
            return 0

    def run_flush(self, now_ms: int) -> Steps[None]:
        """Start to flush the logs whose flush.ms has passed."""
        for number, log in enumerate(list(self), 1):
            is_due = now_ms - log.flush_state.flushed_ms >= log.config.flush_ms
            if is_due and self._is_current(log):
                self._start_flush(log)
                yield
            elif not number % _LOGS_A_STEP:
                yield

    def _start_flush(self, log: Log) -> None:
        try:
            log.start_flush()
        except OSError as error:
            self.handle_error(log, error)

    def expire_producers(self, now_ms: int) -> Iterator[int]:
        """Forget producers without recent batches, some with each step; yield how many.

        The caller does other work between steps, as in `run_retention`.
        """
        expired = work = 0
        for log in list(self):
            work += _LOG_WORK
            producer_ids = list(log.producers.entries)
            for start in range(0, len(producer_ids), _PRODUCERS_AT_A_TIME):
                some = producer_ids[start : start + _PRODUCERS_AT_A_TIME]
                work += len(some)
                if work > _PRODUCERS_AT_A_TIME:
                    yield expired
                    expired, work = 0, len(some)
                expired += log.producers.expire(now_ms, self.producer_expiration_ms, some)
            if work >= _PRODUCERS_AT_A_TIME:
                yield expired
                expired = work = 0
        yield expired

    def delete_pending_files(self, now_ms: int) -> int:
        """Start to delete files whose delay is over; return how many."""
        return self.resources.trash.empty(now_ms)

    def release_idle_memory(self) -> Steps[None]:
        """Free the memory of logs that are gone, or were not appended to since the last call."""
        yield from self._dropped.free()
        for number, log in enumerate(list(self), 1):
            yield from log.release_idle_memory()
            if not number % _LOGS_A_STEP:
                yield

    def write_checkpoints(self) -> Steps[None]:
        """Start to write recovery points, log start offsets and high watermarks."""
        for directory in list(self.directories.values()):
            job = yield from self._begin_checkpoint(directory)
            if job is not None:
                self._submit_checkpoint(directory, job)

    def forget(self, partitions: Collection[TopicPartition]) -> Steps[None]:
        """Remove partitions from the checkpoints before logs of their names are created.

        The checkpoints are written in the background. If that fails, `create` tries again.
        """
        for directory in list(self.directories.values()):
            for _ in range(_CHECKPOINT_ATTEMPTS):
                if directory.path not in self.directories or not directory.remembers(partitions):
                    break
                wait = Wait()
                job = directory.running_job  # it may have begun before they were deleted
                if job is not None:
                    job.then.append(wait.end)
                elif (job := (yield from self._begin_checkpoint(directory))) is None:
                    break
                else:
                    job.then.append(wait.end)
                    self._submit_checkpoint(directory, job)
                if not wait.is_over:
                    yield wait

    def _begin_checkpoint(self, directory: LogDirectory) -> Steps[CheckpointJob | None]:
        return directory.begin_checkpoint(
            self._logs_in(directory.path), self._metadata_log_in(directory.path), self._is_current
        )

    def _is_current(self, log: Log) -> bool:
        return self._logs.get(log.topic_partition) is log

    def _submit_checkpoint(self, directory: LogDirectory, job: CheckpointJob) -> None:
        def written(result: OSError | None) -> None:
            try:
                if result is None and directory.put_checkpoint(job):
                    self.resources.background.submit(job.sync, done)
                    return
            except OSError as error:
                result = error
            done(result)

        def done(result: OSError | None) -> None:
            if result is not None:
                self._handle(directory.path, result)
            directory.end_checkpoint(job)

        self.resources.background.submit(job.write, written)

    def stop_flushes(self) -> None:
        """Give up flushes in the background: `shutdown` forces everything to disk, and faster."""
        for log in self:
            log.flush_state.stop()

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Close all logs, write the checkpoints and the clean-shutdown markers.

        No work may be left in the background.
        """
        from ottla.log.store.clean_shutdown import close_logs

        for directory in list(self.directories.values()):
            metadata_log = self._metadata_log_in(directory.path)
            logs = [
                *self._logs_in(directory.path),
                *(() if metadata_log is None else (metadata_log,)),
            ]
            try:
                close_logs(self.resources.files, directory.path, logs, self._take_log_offline)
                directory.write_checkpoints(self._logs_in(directory.path), metadata_log)
                if not directory.unopened:
                    directory.mark_clean(broker_epoch)
            except OSError as error:
                self.take_offline(directory.path, error)
        self._logs.clear()
        self._listed.clear()
        self.resources.pool.close()

    def _logs_in(self, directory: str) -> list[Log]:
        """Return the logs in a directory but the metadata log. The list must not be changed."""
        logs = self._listed.get(directory)
        if logs is None:
            logs = self._listed[directory] = list(self._held[directory].values())
        return logs

    def _metadata_log_in(self, directory: str) -> Log | None:
        log = self.metadata_log
        return log if log is not None and parent_of(log) == directory else None


def parent_of(log: Log) -> str:
    """Return the log directory that holds a log."""
    return parent_path(log.directory)


def parent_path(path: str) -> str:
    """Return the directory that holds a file or directory."""
    return path.rpartition("/")[0]
