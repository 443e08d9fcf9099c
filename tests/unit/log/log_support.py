"""Ports for tests of the log, batches, and files that fail on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EIO, ENOSPC
from typing import TypeVar

from ottla.config.topic import LogConfig
from ottla.log.append_rules import NeedsValidation
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.startup.open_log import Checkpoint, create_log, open_log
from ottla.memory_files import MemoryFiles
from ottla.model.ids import TopicPartition
from ottla.ports import Buffer, Entry, File, Files, Mapping
from ottla.records.batch import Batch, scan
from ottla.records.record import build_batch
from ottla.records.validation import result_of, validate

T = TypeVar("T")

NOW = 1_700_000_000_000
PARTITION = TopicPartition("t", 0)
TOPIC_ID = bytes(range(1, 17))
DIRECTORY = "/data/t-0"


class FakeClock:
    """A clock that the test moves."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> float:
        return float(self.now_ms)


class CountingRandom:
    """Returns ids that count up, and the largest number below a limit."""

    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, limit: int) -> int:
        return limit - 1


class InlineBackground:
    """Runs the work at once."""

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        result: T | OSError
        try:
            result = work()
        except OSError as error:
            result = error
        done(result)


class QueuedBackground:
    """Keeps the work until `run` is called."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        self.waiting.append(lambda: InlineBackground().submit(work, done))

    def run(self) -> None:
        """Run the waiting work, and the work that it submits."""
        while self.waiting:
            self.waiting.pop(0)()


class FaultyFile:
    """A file whose writes may fail after some bytes."""

    def __init__(self, files: FaultyFiles, file: File) -> None:
        self._files = files
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return self._file.size()

    def pread(self, length: int, position: int) -> bytes:
        content = self._file.pread(length, position)
        self._files.bytes_read += len(content)
        return content

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._files.writes.append((self.path, len(buffers)))
        room = self._files.room_for(self.path)
        if room is None:
            self._file.pwritev(buffers, position)
            return
        content = b"".join(bytes(buffer) for buffer in buffers)
        if len(content) <= room:
            self._file.pwritev([content], position)
            return
        self._file.pwritev([content[:room]], position)
        raise OSError(self._files.errno, "no room on purpose", self.path)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, position: int, length: int) -> None:
        self._file.allocate(position, length)

    def sync(self) -> None:
        if self._files.sync_error is not None:
            self._files.sync_errors -= 1
            error = self._files.sync_error
            if not self._files.sync_errors:
                self._files.sync_error = None
            raise error
        self._files.synced.append(self.path)
        self._file.sync()

    def map(self, *, writable: bool) -> Mapping:
        return self._file.map(writable=writable)

    def close(self) -> None:
        self._file.close()


class FaultyFiles:
    """Wraps other files. Writes to paths that end with `suffix` fail after `room` bytes."""

    def __init__(self, files: Files) -> None:
        self.inner = files
        self.room: int | None = None
        self.suffix = ".log"
        self.errno = ENOSPC
        self.open_error: OSError | None = None
        self.sync_error: OSError | None = None
        self.sync_errors = -1
        """How many syncs fail; all if negative."""
        self.unlistable = ""
        self.synced: list[str] = []
        self.opened: list[str] = []
        self.writes: list[tuple[str, int]] = []
        self.bytes_read = 0

    def room_for(self, path: str) -> int | None:
        return self.room if path.endswith(self.suffix) else None

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> File:
        self.opened.append(path)
        if self.open_error is not None and path.endswith(self.suffix):
            raise self.open_error
        return FaultyFile(self, self.inner.open(path, create=create, writable=writable))

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def list(self, path: str) -> list[Entry]:
        if path == self.unlistable:
            raise OSError(EIO, "on purpose", path)
        return self.inner.list(path)

    def stat(self, path: str) -> Entry:
        return self.inner.stat(path)

    def make_dirs(self, path: str) -> None:
        self.inner.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    def unlink(self, path: str) -> None:
        self.inner.unlink(path)

    def remove_tree(self, path: str) -> None:
        self.inner.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self.synced.append(path)
        self.inner.sync_dir(path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        return self.inner.free_bytes(path)


def new_resources(files: Files | None = None, limit: int = 64) -> Resources:
    """Return ports in memory that run background work at once."""
    files = MemoryFiles() if files is None else files
    return Resources(
        files, FilePool(files, limit), InlineBackground(), FakeClock(), CountingRandom()
    )


def new_log(
    config: LogConfig | None = None,
    resources: Resources | None = None,
    directory: str = DIRECTORY,
) -> Log:
    """Create an empty log."""
    resources = new_resources() if resources is None else resources
    return create_log(resources, directory, PARTITION, TOPIC_ID, config or LogConfig())


def reopen(
    log: Log,
    *,
    is_clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    notes: list[str] | None = None,
    config: LogConfig | None = None,
) -> Log:
    """Open the log as a new process does, with everything below the high watermark."""
    resources = new_resources(log.resources.files)
    checkpoint = Checkpoint(is_clean, recovery_point, log_start_offset, 2**62)
    return open_log(
        resources,
        log.directory,
        log.topic_partition,
        config or log.config,
        checkpoint=checkpoint,
        notes=[] if notes is None else notes,
    )


def batch_of(
    count: int = 1,
    *,
    timestamp: int = NOW,
    value: bytes = b"v" * 20,
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    codec: int = 0,
) -> bytearray:
    """Build a batch as a client sends it."""
    has_id = producer_id >= 0
    return build_batch(
        [(b"k", value, timestamp, ())] * count,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch if has_id else -1,
        base_sequence=base_sequence if has_id else -1,
    )


def append(log: Log, batch: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW) -> int:
    """Append a batch without writing it; its records are looked at here if they must be."""
    view, end = memoryview(batch), len(batch)
    try:
        return log.append_as_leader(batch, view, 0, end, leader_epoch, now_ms)
    except NeedsValidation as needed:
        changed = result_of(validate(needed.validation.request(view)))
        batch = batch if changed is None else changed
        has_keys = needed.validation.checks_keys
        view, end = memoryview(batch), len(batch)
        return log.append_as_leader(batch, view, 0, end, leader_epoch, now_ms, has_keys)


def append_all(log: Log, *batches: bytearray, leader_epoch: int = 0) -> list[int]:
    """Append and write batches, and move the high watermark."""
    offsets = [append(log, batch, leader_epoch=leader_epoch) for batch in batches]
    log.write_queued()
    log.high_watermark = log.log_end_offset
    return offsets


def read_all(log: Log, offset: int | None = None, max_bytes: int = 4096) -> list[Batch]:
    """Return the headers of all batches, read in pieces as a consumer does."""
    found: list[Batch] = []
    offset = log.log_start_offset if offset is None else offset
    while True:
        piece = log.read(offset, max_bytes, log.high_watermark, at_least_one=True)
        if piece is None:
            return found
        batches = list(scan(piece.read(), 0, piece.length))
        assert batches, "a piece without a whole batch"
        found += batches
        offset = batches[-1].next_offset


def names_in(log: Log, suffix: str) -> list[str]:
    """Return the names of the log's files with this suffix."""
    names = (entry.name for entry in log.resources.files.list(log.directory))
    return sorted(name for name in names if name.endswith(suffix))
