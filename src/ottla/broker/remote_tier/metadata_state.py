"""What one partition of `__remote_log_metadata` says about the partitions that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.model.steps import Steps
from ottla.records.batch import Batch, CorruptBatch, scan
from ottla.records.record import records_of
from ottla.tiered.metadata_records import (
    PartitionDelete,
    PartitionDeleteState,
    RemotePartition,
    decode_metadata,
)
from ottla.tiered.remote_segments import RemoteSegments
from ottla.wire.primitives import DecodeError

_RECORDS_A_STEP: Final = 32
_FINISHED: Final = PartitionDeleteState.FINISHED


class MetadataState:
    """The state that the committed records up to `next_offset` make."""

    __slots__ = ("_changed", "_report", "is_caught_up", "next_offset", "partitions")

    def __init__(
        self, changed: Callable[[RemotePartition], None], report: Callable[[str], None]
    ) -> None:
        """Make an empty state. `changed` is called for each partition with a new record."""
        self._changed = changed
        self._report = report
        self.next_offset = 0
        self.is_caught_up = False
        """True once everything was read that was committed when this was asked for."""
        self.partitions: dict[RemotePartition, RemoteSegments] = {}

    def apply(self, data: bytes) -> Steps[None]:
        """Follow whole batches; the last one may be cut."""
        try:
            for batch in scan(data, 0, len(data)):
                if batch.next_offset > self.next_offset:
                    if not batch.is_control:
                        yield from self._apply_batch(data, batch)
                    self.next_offset = batch.next_offset
                yield
        except CorruptBatch as damage:
            self._report(f"__remote_log_metadata has a damaged batch: {damage}")

    def _apply_batch(self, data: bytes, batch: Batch) -> Steps[None]:
        for number, record in enumerate(records_of(data[batch.position : batch.end]), 1):
            if record.offset >= self.next_offset and record.value is not None:
                self._apply_value(record.value)
            if not number % _RECORDS_A_STEP:
                yield

    def _apply_value(self, value: bytes) -> None:
        try:
            record = decode_metadata(value)
        except DecodeError as damage:
            self._report(f"a record of __remote_log_metadata is ignored: {damage}")
            return
        if record is None:
            return
        key = record.partition
        segments = self.partitions.get(key)
        if segments is None:
            segments = self.partitions[key] = RemoteSegments()
        has_changed = segments.apply(record)
        is_end = isinstance(record, PartitionDelete) and segments.delete_state == _FINISHED
        if has_changed and is_end:
            del self.partitions[key]
        self._changed(key)
