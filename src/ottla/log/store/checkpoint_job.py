"""New checkpoints of a log directory: collected and encoded in steps, written off the loop.

There may be tens of thousands of logs, so the loop looks at some of them with each step. A log that
was deleted meanwhile is left out: another log of its name may have been created since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.log.file_names import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from ottla.log.log import Log
from ottla.log.startup.open_log import Checkpoint
from ottla.log.store.checkpoints import encode_offsets
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps
from ottla.ports import Files

_NEXT = ".next"

LOGS_A_STEP: Final = 500
_COMPARED_A_STEP: Final = 1000

Offsets = dict[TopicPartition, int]

Row = tuple[int, int, int, int]
"""Recovery point, high watermark, log start offset, and the offset up to which it was cleaned."""

_row_of: Callable[[Log], Row] = attrgetter(
    "flush_state.recovery_point", "high_watermark", "log_start_offset", "cleaned_upto"
)


class State(NamedTuple):
    """What checkpoints are made of."""

    logs: Sequence[Log]
    """The logs of the directory but the metadata log; the same object as long as they are."""
    rows: list[list[Row]]
    """Of these logs, LOGS_A_STEP in each list."""
    unopened: tuple[TopicPartition, ...]

    def is_same(self, other: State) -> bool:
        """Return True if nothing has changed between the two."""
        return (
            self.logs is other.logs and self.rows == other.rows and self.unopened == other.unopened
        )


def state_of(logs: Sequence[Log], unopened: Mapping[TopicPartition, Checkpoint]) -> Steps[State]:
    """Return what the logs are like, without a Python loop over them."""
    rows: list[list[Row]] = []
    for start in range(0, len(logs), LOGS_A_STEP):
        rows.append(list(map(_row_of, logs[start : start + LOGS_A_STEP])))
        yield
    return State(logs, rows, tuple(unopened))


class CheckpointJob:
    """New checkpoints that are being made."""

    __slots__ = ("_encoded", "_files", "_path", "contents", "state", "then")

    def __init__(self, files: Files, path: str, contents: dict[str, Offsets] | None = None) -> None:
        self._files = files
        self._path = path
        self.contents: dict[str, Offsets] = contents or {}
        self.state: State | None = None
        """What the logs were like, if all checkpoints are up to date after this job."""
        self._encoded: dict[str, bytes] = {}
        self.then: list[Callable[[], None]] = []
        """Called when it is done, or has failed."""

    def collect(
        self,
        state: State,
        metadata_log: Log | None,
        unopened: Mapping[TopicPartition, Checkpoint],
        is_current: Callable[[Log], bool],
    ) -> Steps[None]:
        """Take the offsets of all logs."""
        self.state = state
        contents = self.contents = {
            name: {}
            for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
        }
        for number, rows in enumerate(state.rows):
            start = number * LOGS_A_STEP
            for log, row in zip(state.logs[start : start + LOGS_A_STEP], rows, strict=True):
                if is_current(log):
                    _add(contents, log, row)
            yield
        if metadata_log is not None:
            _add(contents, metadata_log, _row_of(metadata_log))
        for partition, checkpoint in unopened.items():
            contents[RECOVERY_POINTS][partition] = checkpoint.recovery_point
            contents[HIGH_WATERMARKS][partition] = checkpoint.high_watermark
            if checkpoint.log_start_offset:
                contents[LOG_START_OFFSETS][partition] = checkpoint.log_start_offset
            if checkpoint.cleaned_upto:
                contents[CLEANER_OFFSETS][partition] = checkpoint.cleaned_upto

    def drop_unchanged(self, written: Mapping[str, Offsets]) -> Steps[None]:
        """Drop the checkpoints that are the same as those on disk."""
        if not self.contents[CLEANER_OFFSETS] and CLEANER_OFFSETS not in written:
            del self.contents[CLEANER_OFFSETS]
        for name, offsets in list(self.contents.items()):
            if (yield from _are_equal(offsets, written.get(name))):
                del self.contents[name]

    def encode(self) -> Steps[None]:
        """Make the contents of the files."""
        for name, offsets in self.contents.items():
            self._encoded[name] = yield from encode_offsets(offsets)

    def write(self) -> None:
        """Write them beside the old ones and force them to disk; off the loop."""
        for name, content in self._encoded.items():
            file = self._files.open(f"{self._path}/{name}{_NEXT}", create=True, writable=True)
            file.truncate(0)
            file.pwritev([content], 0)
            file.sync()
            file.close()

    def put(self) -> None:
        """Replace the old ones; on the loop."""
        for name in self._encoded:
            self._files.rename(f"{self._path}/{name}{_NEXT}", f"{self._path}/{name}")

    def sync(self) -> None:
        """Force the new names to disk; off the loop."""
        self._files.sync_dir(self._path)


def _add(contents: Mapping[str, Offsets], log: Log, row: Row) -> None:
    partition = log.topic_partition
    recovery_point, high_watermark, start, cleaned = row
    contents[RECOVERY_POINTS][partition] = recovery_point
    contents[HIGH_WATERMARKS][partition] = high_watermark
    if (start and start > log.segments.base_offsets[0]) or log.config.remote_storage_enable:
        contents[LOG_START_OFFSETS][partition] = start
    if cleaned:
        contents[CLEANER_OFFSETS][partition] = cleaned


def _are_equal(offsets: Offsets, others: Offsets | None) -> Steps[bool]:
    if others is None or len(offsets) != len(others):
        return False
    rest = iter(offsets.items())
    while some := list(islice(rest, _COMPARED_A_STEP)):
        if any(others.get(partition) != offset for partition, offset in some):
            return False
        yield
    return True
