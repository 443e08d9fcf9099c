"""Reading a shard back from its log, in slices.

A new leader replays its whole log: records above the high watermark may be committed without
this replica knowing it yet. Nothing is told to clients before the high watermark has passed
all of them (`is_committed`).

A record that cannot be decoded is skipped and reported. Its batch is sound, so a newer broker
wrote it, or somebody who is no coordinator, and the rest of the state does not depend on it.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from ottla.coordinator.runtime.record import RecordError
from ottla.coordinator.runtime.shard import Shard
from ottla.log.log import Log
from ottla.model.ids import NO_PRODUCER_ID
from ottla.ports import Buffer
from ottla.records.batch import Batch, CorruptBatch, scan
from ottla.records.record import records_of

READ_BYTES: Final = 48 * 1024
_LATEST_PER_STEP: Final = 500
_MARKER: Final = Struct(">hh")  # version and type of a control record's key
_ABORT: Final = 0
_COMMIT: Final = 1
_REPORTED: Final = 3


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
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        """The offset and the value of the last record of each key in LATEST_ONLY."""
        self._damaged = 0
        self.notes: list[str] = []
        """Messages for the operator."""

    @property
    def is_committed(self) -> bool:
        """True if the high watermark has passed everything that was replayed."""
        return self._log.high_watermark >= self._end_offset

    def step(self) -> bool:
        """Replay a slice, and return True if that was all.

        Raise OSError or CorruptBatch if the log cannot be read.
        """
        if self._offset >= self._end_offset:
            self._replay_latest(_LATEST_PER_STEP)
            return not self._latest
        data = self._read()
        for batch in scan(data, 0, len(data)):
            self._offset = batch.next_offset
            self._load(batch, data)
        return self._offset >= self._end_offset and not self._latest

    def _read(self) -> Buffer:
        piece = self._log.read(self._offset, READ_BYTES, self._end_offset, at_least_one=True)
        if piece is None:
            raise CorruptBatch(0, f"the log ends at {self._offset}, before {self._end_offset}")
        return piece.read()

    def _load(self, batch: Batch, data: Buffer) -> None:
        records = records_of(data[batch.position : batch.end])
        if batch.is_transactional:
            self._replay_latest(len(self._latest))
        if batch.is_control:
            for record in records:
                self._end_transaction(batch.producer_id, record.key)
            return
        if batch.is_transactional:
            for record in records:
                self._replay(record.offset, record.key, record.value, batch.producer_id)
            return
        latest, prefixes = self._latest, self._shard.LATEST_ONLY
        for offset, _, key, value, _ in records:
            if key is not None and key.startswith(prefixes):
                latest[key] = (offset, value)
            else:
                self._replay(offset, key, value)

    def _replay_latest(self, count: int) -> None:
        latest = self._latest
        for _ in range(min(count, len(latest))):
            key, (offset, value) = latest.popitem()
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
            self._shard.end_transaction(producer_id, committed=kind == _COMMIT)

    def _skip(self, offset: int, problem: RecordError) -> None:
        self._damaged += 1
        if self._damaged <= _REPORTED:
            self.notes.append(f"the record at offset {offset} was skipped: {problem}")
