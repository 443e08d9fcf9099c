"""Logs and batches for tests."""

from __future__ import annotations

from ottla.config.topic import LogConfig
from ottla.log.append_rules import WELL_FORMED, WITH_KEYS, NeedsValidation
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.startup.open_log import Checkpoint, create_log, open_log
from ottla.memory_files import MemoryFiles
from ottla.model.ids import TopicPartition
from ottla.ports import Files
from ottla.records.batch import Batch, scan
from ottla.records.record import build_batch
from ottla.records.validation import result_of, validate
from ottla.testing.fakes import START_MS, FakeClock, FakeRandom, InlineBackground

NOW = START_MS
PARTITION = TopicPartition("t", 0)
TOPIC_ID = bytes(range(1, 17))
DIRECTORY = "/data/t-0"


def new_resources(files: Files | None = None, limit: int = 64) -> Resources:
    """Return ports in memory that run background work at once."""
    files = MemoryFiles() if files is None else files
    return Resources(
        files,
        FilePool(files, limit),
        InlineBackground(),
        FakeClock(),
        FakeRandom(lambda limit: limit - 1),
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
        checked = WITH_KEYS if needed.validation.checks_keys else WELL_FORMED
        view, end = memoryview(batch), len(batch)
        return log.append_as_leader(batch, view, 0, end, leader_epoch, now_ms, checked)


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
