"""When the active segment is full and the next batch needs a new one.

A segment ends when the batch would make it larger than segment.bytes, when the batch's
timestamp is segment.ms (less segment.jitter.ms) after the first batch's, when its last offset
is too far from the base offset for the index, or when an index is full. Three numbers stand for
all rules, so that an append compares and does nothing else; after anything that changes a rule
they are invalid, and the next append checks every rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.segment.batch_scan import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig
    from ottla.log.segment.segment import Segment

_ALWAYS = -(2**63)
_INVALID = -1


class RollLimits:
    """The size, offset and timestamp up to which batches fit into the active segment."""

    __slots__ = (
        "_created_ms",
        "_first_timestamp",
        "_jitter_ms",
        "last_offset",
        "size",
        "timestamp",
    )

    def __init__(self) -> None:
        self._created_ms = self._jitter_ms = 0
        self._first_timestamp: int | None = None
        self.last_offset = self.timestamp = _ALWAYS
        self.size = _INVALID

    def begin(self, now_ms: int, jitter_ms: int) -> None:
        """Start again for a segment that becomes active now."""
        self._created_ms = now_ms
        self._jitter_ms = jitter_ms
        self.forget_first_batch()

    def invalidate(self) -> None:
        """Have the next append check every rule."""
        self.size = _INVALID

    def forget_first_batch(self) -> None:
        """Read the timestamp of the segment's first batch again when it is needed."""
        self._first_timestamp = None
        self.invalidate()

    def set(self, config: LogConfig, segment: Segment, position: int, max_timestamp: int) -> None:
        """Compute the limits for a segment that takes a batch at a position."""
        if not position:
            self._first_timestamp = max_timestamp
        first = self._first_timestamp_of(segment)
        self.size = config.segment_bytes
        self.last_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        # Without timestamps in the batches the clock counts, so each append has to check.
        self.timestamp = first + self._max_age_ms(config) if first >= 0 else _ALWAYS

    def is_too_old(
        self, config: LogConfig, segment: Segment, max_timestamp: int, now_ms: int
    ) -> bool:
        """Return True if the segment's first batch is too old for a batch with this timestamp."""
        first = self._first_timestamp_of(segment)
        age_ms = max_timestamp - first if first >= 0 else now_ms - self._created_ms
        return age_ms > self._max_age_ms(config)

    def age_ms(self, segment: Segment, now_ms: int) -> int:
        """Return how long ago the first batch of a segment that is not empty was written.

        If its timestamp cannot be right (there is none, or it is in the future), that is how long
        ago the segment was begun.
        """
        first = self._first_timestamp_of(segment)
        return now_ms - (first if 0 < first <= now_ms else self._created_ms)

    def _max_age_ms(self, config: LogConfig) -> int:
        return config.max_segment_ms - self._jitter_ms

    def _first_timestamp_of(self, segment: Segment) -> int:
        """Return the largest timestamp of the segment's first batch, reading it once."""
        if self._first_timestamp is None:
            self._first_timestamp = next(segment.batches_from(0)).max_timestamp
        return self._first_timestamp
