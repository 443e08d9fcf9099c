"""Reading a shard back from its log, in slices.

A small log is read and decoded on the loop. Of a larger one, the bytes are read in the
background and decoded in a helper process, and the loop replays what is left of them. If the
helper process fails, the loop decodes them too.

A new leader replays its whole log: records above the high watermark may be committed without
this replica knowing it yet. Nothing is told to clients before the high watermark has passed
all of them (`is_committed`).

A record that cannot be decoded is skipped and reported. Its batch is sound, so a newer broker
wrote it, or somebody who is no coordinator, and the rest of the state does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from itertools import chain, islice
from struct import Struct, error
from typing import Final

from ottla.coordinator.runtime.log_entries import TASK, Entry, compacted, entries_of, task_data
from ottla.coordinator.runtime.record import RecordError
from ottla.coordinator.runtime.shard import Shard
from ottla.log.log import Log
from ottla.log.segment.file_slice import FileSlice
from ottla.model.ids import NO_PRODUCER_ID
from ottla.model.steps import Steps
from ottla.ports import TaskFailed
from ottla.records.batch import CorruptBatch, scan
from ottla.records.checksum import crc32c

SMALL_LOG_BYTES: Final = 128 * 1024
"""A log of this size is read and decoded on the loop."""

READ_BYTES: Final = 48 * 1024
LARGE_READ_BYTES: Final = 2 * 1024 * 1024
"""How much of a larger log is read at a time."""

_ENTRIES_PER_STEP: Final = 700
_REPLAY_COST: Final = 4
"""How much longer it takes to decode and replay an entry than only to keep it."""
_LATEST_PER_STEP: Final = 500
_ENDING_STEPS: Final = 8
_PARTS: Final = 64
_MARKER: Final = Struct(">hh")  # version and type of a control record's key
_ABORT: Final = 0
_COMMIT: Final = 1
_REPORTED: Final = 3


class Progress(Enum):
    """What a step has left to do."""

    MORE = auto()
    WAITING = auto()
    """For bytes of the log. Then `wake` is called."""
    DONE = auto()


class _LatestRecords:
    """The offset and the value of the last record of each key.

    There may be millions, and a dict that grows copies all its entries at once. So there are
    several, each with a part of the keys, the same in every process.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[dict[bytes, tuple[int, bytes | None]]] = [{} for _ in range(_PARTS)]

    def __bool__(self) -> bool:
        return any(self._parts)

    def put(self, key: bytes, offset: int, value: bytes | None) -> None:
        """Replace the record of a key."""
        self._parts[crc32c(key) % _PARTS][key] = (offset, value)

    def take(self, count: int) -> Iterator[tuple[bytes, tuple[int, bytes | None]]]:
        """Remove at most this many records, and yield them."""
        for part in self._parts:
            while part and count:
                count -= 1
                yield part.popitem()


class Loader:
    """Replays the records of a log into a new shard.

    Of the keys in `Shard.LATEST_ONLY` only the last record is decoded, which is all that a
    compacted log would have kept. Transactions depend on the order of records, so all that
    came before a transaction is replayed first.
    """

    def __init__(self, log: Log, shard: Shard) -> None:
        self._log = log
        self._shard = shard
        self._decode = shard.decode
        self._offset = log.log_start_offset
        self._end_offset = log.log_end_offset
        self._is_small = log.size <= SMALL_LOG_BYTES
        self._entries: Iterator[Entry] | None = None
        """The rest of the entries that were read."""
        self._is_waiting = False
        self._problem: OSError | None = None
        self._latest = _LatestRecords()
        """The last record of each key in LATEST_ONLY."""
        self._is_draining = False
        """True while these are replayed, because a transaction follows them."""
        self._ending: Steps[None] | None = None
        """What is left to do for the marker of a transaction."""
        self._damaged = 0
        self.notes: list[str] = []
        """Messages for the operator."""

    @property
    def is_committed(self) -> bool:
        """True if the high watermark has passed everything that was replayed."""
        return self._log.high_watermark >= self._end_offset

    def step(self, wake: Callable[[], None]) -> Progress:
        """Replay a slice. Raise OSError or CorruptBatch if the log cannot be read."""
        if self._is_waiting:
            return Progress.WAITING
        if self._problem is not None:
            raise self._problem
        if self._ending is not None:
            self._go_on_ending(self._ending)
        elif self._is_draining:
            self._replay_latest()
            self._is_draining = bool(self._latest)
        elif self._entries is not None:
            self._replay_some(self._entries)
        elif self._offset < self._end_offset:
            return self._read(wake)
        else:
            self._replay_latest()
        if self._ending is None and self._entries is None and self._offset >= self._end_offset:
            return Progress.MORE if self._latest else Progress.DONE
        return Progress.MORE

    # -- reading -------------------------------------------------------------------------

    def _read(self, wake: Callable[[], None]) -> Progress:
        piece = self._find(READ_BYTES if self._is_small else LARGE_READ_BYTES)
        if piece is None:
            return Progress.MORE
        if self._is_small:
            self._entries = self._decoded(piece.read())
            return Progress.MORE
        self._is_waiting = True
        background = self._shard.broker.ports.background
        background.submit(piece.read, partial(self._have_read, wake))
        return Progress.WAITING if self._is_waiting else Progress.MORE

    def _find(self, max_bytes: int) -> FileSlice | None:
        """Return the next batches; None while the log rebuilds an index in the background."""
        piece = self._log.read(self._offset, max_bytes, self._end_offset, at_least_one=True)
        if piece is None and len(self._log.resources.index_jobs):
            return None
        if piece is None:
            raise CorruptBatch(0, f"the log ends at {self._offset}, before {self._end_offset}")
        return piece

    def _have_read(self, wake: Callable[[], None], data: bytes | OSError) -> None:
        if isinstance(data, OSError):
            self._problem = data
            self._ready(wake)
            return

        def done(result: bytes | TaskFailed) -> None:
            if isinstance(result, TaskFailed):
                self._entries = self._decoded(data)
            else:
                self._offset, self._entries = compacted(result)
            self._ready(wake)

        task = task_data(self._shard.LATEST_ONLY, data)
        try:
            self._shard.broker.ports.helpers.submit(TASK, task, done)
        except TaskFailed as failure:
            done(failure)

    def _ready(self, wake: Callable[[], None]) -> None:
        self._is_waiting = False
        wake()

    def _decoded(self, data: bytes) -> Iterator[Entry]:
        for batch in scan(data, 0, len(data)):
            self._offset = batch.next_offset
            yield from entries_of(data, batch)

    # -- replay --------------------------------------------------------------------------

    def _replay_some(self, entries: Iterator[Entry]) -> None:
        put, prefixes = self._latest.put, self._shard.LATEST_ONLY
        left = _ENTRIES_PER_STEP
        for entry in entries:
            offset, producer_id, is_marker, key, value = entry
            if producer_id == NO_PRODUCER_ID and not is_marker:
                if key is not None and key.startswith(prefixes):
                    put(key, offset, value)
                    left -= 1
                else:
                    self._replay(offset, key, value)
                    left -= _REPLAY_COST
            elif self._latest:  # these come first, however many they are
                self._is_draining = True
                self._entries = chain((entry,), entries)
                return
            elif is_marker:
                self._end_transaction(producer_id, key)
                left -= _REPLAY_COST
            else:
                self._replay(offset, key, value, producer_id)
                left -= _REPLAY_COST
            if left <= 0 or self._ending is not None:
                return
        self._entries = None

    def _replay_latest(self) -> None:
        for key, (offset, value) in self._latest.take(_LATEST_PER_STEP):
            self._replay(offset, key, value)

    def _replay(
        self,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        try:
            record = self._decode(key, value)
        except RecordError as problem:
            self._skip(offset, problem)
            return
        if record is None:
            return
        if producer_id == NO_PRODUCER_ID:
            self._shard.replay(*record)
        else:
            self._shard.replay_transactional(*record, producer_id, offset)

    def _end_transaction(self, producer_id: int, key: bytes | None) -> None:
        try:
            kind = _MARKER.unpack(key or b"")[1]
        except error:
            return
        if kind in (_ABORT, _COMMIT):
            self._go_on_ending(self._shard.end_transaction(producer_id, committed=kind == _COMMIT))

    def _go_on_ending(self, steps: Steps[None]) -> None:
        """Apply a part of a marker."""
        is_over = sum(1 for _ in islice(steps, _ENDING_STEPS)) < _ENDING_STEPS
        self._ending = None if is_over else steps

    def _skip(self, offset: int, problem: RecordError) -> None:
        self._damaged += 1
        if self._damaged <= _REPORTED:
            self.notes.append(f"the record at offset {offset} was skipped: {problem}")
