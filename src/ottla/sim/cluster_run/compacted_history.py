"""The committed batches of a log that is compacted: replicas may lack what later records replace.

Each batch of a replica is one that was committed, with all of its records or fewer. Whatever was
removed, the newest record of each key stays, unless it deletes the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ottla.log.log import Log
from ottla.log.state.producer_replay import read_marker
from ottla.records.batch import Batch
from ottla.records.record import records_of
from ottla.sim.cluster_run.history import LogHistory, batches_of
from ottla.sim.network.exchange import Violation

Batches: TypeAlias = Sequence[tuple[Batch, bytes]]


class CompactedHistory(LogHistory):
    """A history that knows records, not only batches."""

    def __init__(
        self,
        name: str,
        *,
        has_uids: bool,
        on_added: Callable[[Batch, bytes], None] = lambda batch, data: None,
    ) -> None:
        super().__init__(name, has_uids=has_uids, on_added=on_added)
        self._records: dict[int, tuple[bytes | None, bytes | None]] = {}
        """The key and the value at each offset."""
        self._newest: dict[bytes | None, int] = {}
        """The offset of the newest record of each key, outside of open and aborted transactions."""
        self._undecided: dict[int, list[int]] = {}
        """The offsets of records in open transactions, by producer."""

    def compare(self, who: str, batch: Batch, data: bytes) -> None:
        known = self.batches.get(batch.base_offset)
        if known is None and batch.base_offset == self.end:
            super().compare(who, batch, data)
            self._note(batch, data)
            return
        if (
            known is None
            or known.next_offset != batch.next_offset
            or known.leader_epoch != batch.partition_leader_epoch
        ):
            raise Violation(f"{who} has {batch} in {self.name}; committed was {known}")
        if known.crc == batch.crc:
            return
        for record in records_of(data):
            if self._records.get(record.offset) != (record.key, record.value):
                raise Violation(
                    f"{who} has {record} in {self.name}; committed was"
                    f" {self._records.get(record.offset)}"
                )

    def _note(self, batch: Batch, data: bytes) -> None:
        records = records_of(data)
        for record in records:
            self._records[record.offset] = record.key, record.value
        offsets = [record.offset for record in records]
        if batch.is_control:
            marker = read_marker(data)
            ended = self._undecided.pop(batch.producer_id, []) if marker is not None else []
            offsets = [] if marker is None or marker.is_abort else ended
        elif batch.is_transactional:
            self._undecided.setdefault(batch.producer_id, []).extend(offsets)
            return
        for offset in offsets:
            key = self._records[offset][0]
            self._newest[key] = max(offset, self._newest.get(key, -1))

    def check_whole(self, who: str, log: Log, remote: Batches = ()) -> None:
        """Raise Violation if a replica lacks the newest record of a key.

        `remote` is what the remote tier has of it.
        """
        found = {
            record.offset
            for batch, data in (*remote, *batches_of(log, 0, log.high_watermark))
            if not batch.is_control
            for record in records_of(data)
        }
        for key, offset in self._newest.items():
            is_deleted = self._records[offset][1] is None
            if offset < log.high_watermark and offset not in found and not is_deleted:
                raise Violation(f"{who} lacks {key!r} at {offset} of {self.name}")
