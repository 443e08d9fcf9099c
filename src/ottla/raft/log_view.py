"""What the state machine reads of the log. The log itself stays outside."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class OffsetAndEpoch(NamedTuple):
    """An end offset and the epoch of the record before it; also the id of a snapshot."""

    offset: int
    epoch: int


class LogView(Protocol):
    """A read-only view of the log as it is after all earlier effects were executed."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def end_epoch(self) -> int:
        """The epoch of the last record; of the latest snapshot if there is none; else 0."""
        ...

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch not above `epoch`, and the offset where it ends."""
        ...
