"""Compares the batches of a segment with its indexes and its manifest, one batch at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ottla.log.segment.txn_index import AbortedTxn
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.batch import MAGIC_V2, Batch, CorruptBatch
from ottla.records.control import ControlType, control_type
from ottla.tier_reader.batch_stream import RemoteBatch
from ottla.tier_reader.findings import Finding, problem
from ottla.tiered.layout import INDEX, LOG, TIME_INDEX, TXN_INDEX
from ottla.tiered.manifest import Manifest


class LogVerification:
    """The checks of one segment: call `add` for each batch in order, then `finish`.

    An offset index entry must have the position of a batch, and an offset that is not before it. A
    time index entry must name a batch with its timestamp, and no earlier batch may have a larger
    one; the last entry has the largest timestamp. An aborted transaction must end with a
    marker in the segment.
    """

    def __init__(
        self,
        manifest: Manifest,
        offset_entries: list[tuple[int, int]],
        time_entries: list[tuple[int, int]],
        aborted: list[AbortedTxn],
    ) -> None:
        self._manifest = manifest
        self._positions = iter(offset_entries)
        self._position = next(self._positions, None)
        self._times = iter(time_entries)
        self._time = next(self._times, None)
        self._last_time = time_entries[-1][0] if time_entries else NO_TIMESTAMP
        self._aborted = {each.last_offset: each.producer_id for each in aborted}
        self._epoch_starts = [entry.start_offset for entry in manifest.leader_epochs]
        self._max_timestamp = NO_TIMESTAMP
        self._told: set[str] = set()
        self.records = 0
        self.batches = 0

    def add(self, batch: RemoteBatch) -> Iterator[Finding]:
        """Compare a batch; yield the first problem of each kind."""
        header = batch.header
        self.batches += 1
        self.records += header.record_count
        yield from self._once(INDEX, self._check_position(header))
        yield from self._once(TIME_INDEX, self._check_time(header))
        yield from self._once(LOG, self._check_epoch(header))
        if header.is_control:
            self._note_marker(batch)
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)

    def finish(self) -> Iterator[Finding]:
        """Yield what is wrong with the segment as a whole."""
        if self._position is not None:
            yield from self._once(INDEX, f"no batch begins at position {self._position[1]}")
        if self._time is not None:
            yield from self._once(TIME_INDEX, f"offset {self._time[1]} is not in the segment")
        if self._last_time != self._max_timestamp:
            text = (
                f"it ends with timestamp {self._last_time}, the segment has {self._max_timestamp}"
            )
            yield from self._once(TIME_INDEX, text)
        if self._manifest.max_timestamp_ms != self._max_timestamp:
            text = f"max_timestamp_ms is {self._manifest.max_timestamp_ms}"
            yield problem(f"{text}, the segment has {self._max_timestamp}", self._manifest.key())
        for offset in self._aborted:
            yield from self._once(TXN_INDEX, f"no transaction is aborted at offset {offset}")
        if not self.batches and self._manifest.max_timestamp_ms != NO_TIMESTAMP:
            # else it is a segment of a compacted topic, and no record of it is left
            yield from self._once(LOG, "it has no batches")

    def _once(self, kind: str, text: str | None) -> Iterator[Finding]:
        if text is not None and kind not in self._told:
            self._told.add(kind)
            yield problem(text, self._manifest.key(kind))

    def _check_position(self, header: Batch) -> str | None:
        if self._position is None or self._position[1] > header.position:
            return None
        (offset, position), self._position = self._position, next(self._positions, None)
        if position < header.position:
            return f"no batch begins at position {position}"
        if offset < header.base_offset:
            return f"position {position} is that of offset {header.base_offset}, not {offset}"
        return None

    def _check_time(self, header: Batch) -> str | None:
        text = None
        while self._time is not None and self._time[1] <= header.last_offset:
            (timestamp, offset), self._time = self._time, next(self._times, None)
            if self._max_timestamp > timestamp:
                text = text or f"a record before offset {offset} is later than {timestamp}"
            elif offset < header.base_offset or header.max_timestamp != timestamp:
                text = text or f"offset {offset} does not have timestamp {timestamp}"
        return text

    def _check_epoch(self, header: Batch) -> str | None:
        epoch = header.partition_leader_epoch
        at = bisect_right(self._epoch_starts, header.base_offset) - 1
        if header.magic != MAGIC_V2 or epoch < 0 or at < 0:
            return None
        expected = self._manifest.leader_epochs[at].epoch
        if epoch == expected:
            return None
        return f"offset {header.base_offset} has leader epoch {epoch}, the manifest {expected}"

    def _note_marker(self, batch: RemoteBatch) -> None:
        offset = batch.header.base_offset
        if self._aborted.get(offset) != batch.header.producer_id:
            return
        try:
            kinds = [control_type(record.key) for record in batch.records()]
        except CorruptBatch:
            return
        if kinds == [ControlType.ABORT]:
            del self._aborted[offset]
