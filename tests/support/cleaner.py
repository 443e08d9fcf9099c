"""Clean logs in tests: everything at once, with the helper's tasks done in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.config.broker_settings.cleaner import CleanerConfig
from ottla.log.cleaner.clean_run import CleanRun, CleanSettings, CleanWorld
from ottla.log.cleaner.cleanable import cleanable
from ottla.log.cleaner.cleaning_task import run
from ottla.log.cleaner.io_throttle import IoThrottle
from ottla.log.cleaner.task_messages import unpack
from ottla.log.log import Log
from ottla.model.steps import Steps, run_to_end
from ottla.ports import Buffer, HelperProcesses, TaskFailed, run_task
from ottla.records.record import build_batch, records_of
from tests.support.log import NOW, append_all

Done = Callable[[bytes | TaskFailed], None]
MAP_BYTES = 1 << 20


class Seen(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def clean_run(
    log: Log,
    map_bytes: int = MAP_BYTES,
    chunk_bytes: int = 1 << 16,
    after: str = "begin",
    then: Callable[[], None] = lambda: None,
) -> CleanRun:
    """Return a clean of all that is cleanable now.

    `then` is called once the helper has done its first task with the name `after`.
    """
    done_tasks: list[str] = []

    def ask(message: bytes, done: Callable[[bytes], None]) -> None:
        answer, task = run(message), unpack(message)[0]["task"]
        done_tasks.append(task)
        if task == after and done_tasks.count(after) == 1:
            then()
        done(answer)

    world = CleanWorld(
        ask,
        lambda delay_ms, action: action(),
        lambda: True,
        lambda: False,
        IoThrottle(1e300),
    )
    plan = cleanable(log, log.resources.clock.wall_ms())
    return CleanRun("test", plan, CleanSettings(map_bytes, 0.9, chunk_bytes), world)


def clean(log: Log, map_bytes: int = MAP_BYTES, chunk_bytes: int = 1 << 16) -> None:
    """Clean all that is cleanable now."""
    log.cleaned_upto = run_to_end(clean_run(log, map_bytes, chunk_bytes).steps())


def keyed(
    *records: tuple[str, str | None], timestamp: int = NOW, codec: int = 0, **fields: Any
) -> bytearray:
    """Build a batch with these keys and values."""
    return build_batch(
        [
            (key.encode(), None if value is None else value.encode(), timestamp + number, ())
            for number, (key, value) in enumerate(records)
        ],
        codec=codec,
        **fields,
    )


def roll(log: Log) -> None:
    """Begin a new segment."""
    log.roll(NOW)


def fill(log: Log, *segments: Sequence[bytearray]) -> None:
    """Append batches, and roll after each group of them."""
    for batches in segments:
        append_all(log, *batches)
        roll(log)


def seen(log: Log, offset: int | None = None) -> list[Seen]:
    """Return all records from an offset on, as a consumer reads them."""
    found: list[Seen] = []
    offset = log.log_start_offset if offset is None else offset
    while True:
        piece = log.read(offset, 1 << 20, log.high_watermark, at_least_one=True)
        if piece is None:
            return found
        data, position = piece.read(), 0
        while position < len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            batch = bytes(data[position : position + size])
            if len(batch) < size:
                break
            found += [Seen(r.offset, r.key, r.value, r.timestamp) for r in records_of(batch)]
            offset = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
            position += size


def last_values(records: Sequence[Seen]) -> dict[bytes | None, bytes | None]:
    """Return what a reader of all records has for each key in the end."""
    table = {record.key: record.value for record in records}
    return {key: value for key, value in table.items() if value is not None}


class InlineHelpers:
    """Does each task before `submit` returns; fails the next ones on demand."""

    def __init__(self) -> None:
        self.failures = 0
        self.lanes: list[str] = []

    def submit(self, task: str, data: Buffer, done: Done, lane: str = "") -> None:
        self.lanes.append(lane)
        if self.failures:
            self.failures -= 1
            done(TaskFailed("it ended"))
        else:
            done(run_task(task, data))


class FakeHost:
    """The host of a LogCleaner that does everything at once."""

    def __init__(self, helpers: HelperProcesses | None = None) -> None:
        self.helpers: HelperProcesses = InlineHelpers() if helpers is None else helpers
        self.reports: list[str] = []
        self.failed: list[tuple[Log, OSError]] = []
        self.later: list[Callable[[], None]] = []

    def run(self, steps: Steps[Any]) -> None:
        run_to_end(steps)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> None:
        action()

    def serves_clients(self) -> bool:
        return False

    def storage_failed(self, log: Log, error: OSError) -> None:
        self.failed.append((log, error))

    def report(self, message: str) -> None:
        self.reports.append(message)


CONFIG = CleanerConfig()
