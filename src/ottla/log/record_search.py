"""Find a record by its timestamp inside a batch, at once or in a helper process.

A batch may hold a million records, and a compressed one says nothing about how many bytes it
becomes. `RecordSearch` reads a bounded number of records, and decompresses small batches only. For
others it raises `NeedsRecordSearch`: the caller lets a helper process search the batch
(`ottla.records.timestamp_search`), tells the result with `remember`, and asks again.
"""

from __future__ import annotations

from typing import Final, Protocol

from ottla.records.batch import Batch, TooMuchData
from ottla.records.structure import UNLIMITED, OutOfSteps
from ottla.records.timestamp_search import FoundRecord, first_record_at, request_for

STEPS_OF_REQUEST: Final = 4096
"""How many records are read at once for a request: this takes 3 ms."""
_MAX_COMPRESSED: Final = 16 * 1024
_MAX_DECOMPRESSED: Final = 64 * 1024


class BatchSource(Protocol):
    """Where a batch lies: a segment, local or remote."""

    def read_batch(self, batch: Batch) -> bytes:
        """Return all bytes of a batch."""
        ...


class NeedsRecordSearch(Exception):
    """A helper process must search a batch."""

    def __init__(self, request: bytes, batch: Batch) -> None:
        super().__init__(batch)
        self.request = request
        self.batch = batch


class SearchBudget:
    """How many records may be read at once; the lookups of a request share one."""

    __slots__ = ("steps",)

    def __init__(self, steps: int = UNLIMITED) -> None:
        self.steps = steps


class RecordSearch:
    """The searches of one lookup in a log."""

    __slots__ = ("_budget", "_known")

    def __init__(self, budget: SearchBudget | None = None) -> None:
        """Make a search; without a budget it reads as many records as there are."""
        self._budget = budget
        self._known: dict[Batch, FoundRecord | None] = {}

    def find(
        self, segment: BatchSource, batch: Batch, timestamp_ms: int, first_offset: int
    ) -> FoundRecord | None:
        """Return the first record of a batch, from an offset on, at this timestamp or later.

        Raise CorruptBatch if its records cannot be read, and NeedsRecordSearch.
        """
        if batch in self._known:
            return self._known[batch]
        data, budget = segment.read_batch(batch), self._budget
        if budget is None:
            return first_record_at(data, 0, timestamp_ms, first_offset)
        if budget.steps > 0 and (not batch.compression or batch.size <= _MAX_COMPRESSED):
            limit = _MAX_DECOMPRESSED if batch.compression else batch.size
            steps, read = budget.steps, batch.record_count
            try:
                found = first_record_at(data, 0, timestamp_ms, first_offset, limit, steps)
                if found is not None:
                    read = found.offset - batch.base_offset + 1
                return found
            except (OutOfSteps, TooMuchData):
                pass
            finally:
                budget.steps -= read
        raise NeedsRecordSearch(request_for(data, timestamp_ms, first_offset), batch)

    def remember(self, batch: Batch, found: FoundRecord | None) -> None:
        """Note what a helper process has found in a batch."""
        self._known[batch] = found
