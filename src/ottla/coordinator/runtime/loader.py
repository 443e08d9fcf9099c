"""Reading a shard back from its log, a bounded piece at a time.

A record that makes no sense is passed over and reported: the batch around it is sound, so it
is of a newer version, or not a coordinator's at all, and the other groups do not depend on it.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.record_serde import RecordError, decode
from ottla.log.log import Log
from ottla.model.ids import NO_PRODUCER_ID
from ottla.ports import Buffer
from ottla.records.batch import Batch, CorruptBatch, scan
from ottla.records.record import records_of

READ_BYTES: Final = 48 * 1024
_COMMITS_AT_A_TIME: Final = 500
_OFFSET_COMMIT: Final = b"\0\1"  # how the key of a commit begins
_MARKER: Final = Struct(">hh")  # version and type of a control record's key
_ABORT: Final = 0
_COMMIT: Final = 1
_SHOWN: Final = 3


class Loader:
    """Replays the committed records of a log into a new shard.

    Most records are commits, and most of those were overtaken by later ones: only the last of
    each key is decoded, which is all that a compacted log would have kept. Transactions depend
    on the order, so what came before one is replayed first.
    """

    def __init__(self, log: Log, shard: GroupShard) -> None:
        self._log = log
        self._shard = shard
        self._offset = log.log_start_offset
        self._upto = log.high_watermark
        self._commits: dict[bytes, tuple[int, bytes | None]] = {}
        """The offset and the value of the last commit of each key."""
        self._damaged = 0
        self.notes: list[str] = []
        """What the operator should know."""

    def step(self) -> bool:
        """Replay some more; whether that was all. OSError or CorruptBatch if it cannot be read."""
        if self._offset >= self._upto:
            self._replay_commits(_COMMITS_AT_A_TIME)
            return not self._commits
        piece = self._log.read(self._offset, READ_BYTES, self._upto, at_least_one=True)
        if piece is None:
            raise CorruptBatch(0, f"nothing is left at {self._offset}, short of {self._upto}")
        data = piece.read()
        for batch in scan(data, 0, len(data)):
            self._offset = batch.next_offset
            self._take(batch, data)
        return self._offset >= self._upto and not self._commits

    def _take(self, batch: Batch, data: Buffer) -> None:
        records = records_of(data[batch.position : batch.end])
        if batch.is_transactional:
            self._replay_commits(len(self._commits))
        if batch.is_control:
            for record in records:
                self._end_transaction(batch.producer_id, record.key)
            return
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        commits = self._commits
        for offset, _, key, value, _ in records:
            if producer_id == NO_PRODUCER_ID and key is not None and key[:2] == _OFFSET_COMMIT:
                commits[key] = (offset, value)
            else:
                self._replay(offset, key, value, producer_id)

    def _replay_commits(self, count: int) -> None:
        commits = self._commits
        for _ in range(min(count, len(commits))):
            key, (offset, value) = commits.popitem()
            self._replay(offset, key, value, NO_PRODUCER_ID)

    def _replay(
        self, offset: int, key: bytes | None, value: bytes | None, producer_id: int
    ) -> None:
        try:
            decoded = decode(key, value)
        except RecordError as problem:
            self._pass_over(offset, problem)
            return
        if decoded is not None:
            self._shard.replay(*decoded, offset, producer_id)

    def _end_transaction(self, producer_id: int, key: bytes | None) -> None:
        try:
            kind = _MARKER.unpack(key or b"")[1]
        except error:
            return
        if kind in (_ABORT, _COMMIT):
            self._shard.end_transaction(producer_id, committed=kind == _COMMIT)

    def _pass_over(self, offset: int, problem: RecordError) -> None:
        self._damaged += 1
        if self._damaged <= _SHOWN:
            self.notes.append(
                f"the record at offset {offset} of {self._log.topic_partition} is passed over:"
                f" {problem}"
            )
