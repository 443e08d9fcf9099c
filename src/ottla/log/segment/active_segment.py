"""The end of a log: batches that are queued for the active segment, and writing them.

Queued batches have their position, but are not in the file yet. `write` writes all of them to
the file with one call, `write_indexes` adds their index entries, `undo` forgets them.
`position` is where the next batch goes: the segment's size plus the bytes that are queued.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.resources import Resources
from ottla.log.segment.batch_scan import MAX_RELATIVE_OFFSET
from ottla.log.segment.last_write import MOST_KEPT_BYTES, LastWrite
from ottla.log.segment.recent_batches import LIMIT, RecentBatches
from ottla.log.segment.roll_limits import RollLimits
from ottla.log.segment.segment import ALLOCATE_FROM_BYTES, Segment
from ottla.log.segment.txn_index import AbortedTxn
from ottla.model.ids import NO_TIMESTAMP

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig


class RolledSegment(NamedTuple):
    """The segment before the active one, with its newest batches."""

    segment: Segment
    recent: RecentBatches


class ActiveSegment:
    """The last segment of a log with the batches that are queued for it."""

    __slots__ = (
        "_allocated_end",
        "_config",
        "_index_interval_bytes",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_pending",
        "_pending_aborted",
        "_pending_index",
        "_resources",
        "_since_index",
        "has_entries",
        "last_write",
        "limits",
        "position",
        "queue",
        "recent",
        "rolled",
        "segment",
    )

    segment: Segment

    def __init__(self, resources: Resources, config: LogConfig) -> None:
        self._resources = resources
        self.position = self._since_index = self._allocated_end = 0
        self._max_timestamp = self._max_timestamp_offset = NO_TIMESTAMP
        self.limits = RollLimits()
        self.recent = RecentBatches()
        self.rolled: RolledSegment | None = None
        """What followers read that lag a little behind a roll, as long as it is unchanged."""
        self.last_write: LastWrite | None = None
        """What was written last, if it is kept in memory."""
        self._pending: list[memoryview] = []
        self.queue: Callable[[memoryview], None] = self._pending.append
        """Queue bytes of batches that `add_batch` was told about."""
        self._pending_index: list[tuple[int, int, int, int]] = []
        self._pending_aborted: list[AbortedTxn] = []
        self.has_entries = False
        """True if there are index entries of queued batches."""
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings from the next batch on."""
        self._config = config
        self._index_interval_bytes = config.index_interval_bytes
        self.limits.invalidate()

    def switch_to(self, segment: Segment, now_ms: int) -> None:
        """Append to this segment from now on; nothing may be queued."""
        assert not self._pending, "batches are queued for the segment before"
        segment.make_active()
        self.segment = segment
        self._since_index = 0
        self._allocated_end = max(ALLOCATE_FROM_BYTES, segment.size)
        self._set_to_written()
        self.recent.clear()
        self.rolled = self.last_write = None
        jitter = min(self._config.segment_jitter_ms, self._config.max_segment_ms)
        self.limits.begin(now_ms, self._resources.random.below(jitter) if jitter else 0)

    def roll_to(self, segment: Segment, now_ms: int) -> None:
        """Append to a new segment that follows this one; nothing may be queued."""
        rolled = RolledSegment(self.segment, self.recent)
        self.recent = RecentBatches()
        self.switch_to(segment, now_ms)
        self.rolled = rolled

    def forget_recent(self) -> None:
        """Forget the newest batches: reads use the indexes until there are others."""
        self.recent.clear()
        self.rolled = self.last_write = None

    # Queueing

    def add_batch(self, size: int, offset: int, last_offset: int, max_timestamp: int) -> None:
        """Account for a batch at `position`. Its bytes are given to `queue` before the write.

        `offset` is the first one that is answered with this batch: the log end before it.
        """
        position = self.position
        recent = self.recent
        recent.offsets.append(offset)
        recent.positions.append(position)
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._since_index > self._index_interval_bytes:
            self._index(last_offset, position)
        self._since_index += size
        self.position = position + size

    def add_aborted(self, transaction: AbortedTxn) -> None:
        """Add a transaction to the index of the segment when its marker is written."""
        self._pending_aborted.append(transaction)
        self.has_entries = True

    def _index(self, last_offset: int, position: int) -> None:
        """Queue the index entries of a batch."""
        self._since_index = 0
        self.has_entries = True
        self._pending_index.append(
            (last_offset, position, self._max_timestamp, self._max_timestamp_offset)
        )
        if self._indexes_full():
            self.limits.invalidate()

    def _indexes_full(self) -> bool:
        capacity, waiting = self._config.segment_index_bytes, len(self._pending_index)
        offset_index, time_index = self.segment.offset_index, self.segment.time_index
        return offset_index.is_full(capacity, waiting) or time_index.is_full(capacity, waiting)

    # Rolling

    def should_roll(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Return True if a batch needs a new segment. An empty segment takes any batch."""
        config, segment = self._config, self.segment
        return self.position > 0 and (
            self.position + size > config.segment_bytes
            or self.limits.is_too_old(config, segment, max_timestamp, now_ms)
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or self._indexes_full()
        )

    def set_limits(self, max_timestamp: int) -> None:
        """Compute the limits of this segment for the batch that comes next."""
        self.segment.open_indexes()  # every batch of an active segment must be indexed
        self.limits.set(self._config, self.segment, self.position, max_timestamp)

    # Writing

    def write(self, kept_offset: int = -1) -> None:
        """Write the queued bytes with one call; `write_indexes` follows if it `has_entries`.

        With an offset, that of the first batch, the bytes are kept in memory if they are few.
        """
        segment, pending = self.segment, self._pending
        file = self._resources.pool.file(segment)
        if self.position > self._allocated_end:
            limit = self._config.segment_bytes
            self._allocated_end = segment.allocate_ahead(file, self.position, limit)
        file.pwritev(pending, segment.size)
        if kept_offset >= 0 and self.position - segment.size <= MOST_KEPT_BYTES:
            content = b"".join(pending)
            self.last_write = self._resources.last_writes.keep(self, kept_offset, content)
        else:
            self.last_write = None
        segment.set_written(self.position, self._max_timestamp, self._max_timestamp_offset)
        pending.clear()
        if len(self.recent.offsets) > LIMIT:
            self.recent.shorten()

    def write_indexes(self) -> str | None:
        """Add the index entries of the written batches.

        Return the path of the transaction index if it has changed. Raise OSError if it could
        not be written.
        """
        self.has_entries = False
        self._write_index_entries()
        return self._write_aborted() if self._pending_aborted else None

    def _write_index_entries(self) -> None:
        capacity, segment = self._config.segment_index_bytes, self.segment
        entries, self._pending_index = self._pending_index, []
        for last_offset, position, timestamp, timestamp_offset in entries:
            segment.offset_index.append(last_offset, position, capacity)
            segment.time_index.append(timestamp, timestamp_offset, capacity)

    def _write_aborted(self) -> str | None:
        transactions, self._pending_aborted = self._pending_aborted, []
        changed = None
        for transaction in transactions:
            changed = self.segment.add_aborted(transaction) or changed
        return changed

    def undo(self) -> None:
        """Forget what is queued, and remove from the file what a failed write left there."""
        self.discard()
        self._set_to_written()
        self.recent.cut(self.segment.size)
        self.limits.forget_first_batch()
        self.segment.cut_unwritten()

    def discard(self) -> None:
        """Forget what is queued, for a log that is not used any more."""
        self._pending.clear()
        self._pending_index.clear()
        self._pending_aborted.clear()
        self.has_entries = False

    def _set_to_written(self) -> None:
        segment = self.segment
        self.position = segment.size
        self._max_timestamp = segment.max_timestamp
        self._max_timestamp_offset = segment.max_timestamp_offset
