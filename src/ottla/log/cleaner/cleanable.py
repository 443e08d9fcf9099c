"""Decide which part of a log can be cleaned, and which log is cleaned next.

    log start        first dirty offset        first uncleanable offset        log end
        |  clean part       |     cleanable part         |                         |

The clean part was cleaned before: it has each key at most once. The cleanable part ends with a
whole segment. It does not reach into the active segment, past the last stable offset (and so not
past the high watermark), nor into the first segment with a record younger than
min.compaction.lag.ms.

A log is due when its cleanable part is a larger fraction of both parts than
min.cleanable.dirty.ratio, when a record in it is older than max.compaction.lag.ms, or when somebody
asks. The one with the largest fraction comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.definition import MAX_LONG

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment.segment import Segment

_MOST_FIRST_BATCHES = 16
"""How many segments are asked for their first batch, to find the oldest record."""


class Cleanable(NamedTuple):
    """A log, and the part of it that can be cleaned now."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """How long ago max.compaction.lag.ms demanded a clean; 0 if it does not."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        """The fraction of both parts that is dirty."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if self.delay_ms > 0 and self.cleanable_bytes:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def cleanable(log: Log, now_ms: int) -> Cleanable:
    """Return the part of a log that can be cleaned; raise IndexNotReady if that takes longer."""
    first_dirty = first_dirty_offset(log)
    upto = max(first_dirty, _first_uncleanable_offset(log, first_dirty, now_ms))
    segments, base_offsets = log.segments, log.segments.base_offsets
    end_number = min(segments.number_at(upto), len(segments) - 1)
    dirty_number = segments.number_at(first_dirty)
    sizes = [segment.size for segment in segments]
    return Cleanable(
        log,
        first_dirty,
        base_offsets[end_number],
        sum(sizes[: min(dirty_number, end_number)]),
        sum(sizes[dirty_number:end_number]),
        _delay_ms(log, dirty_number, now_ms),
    )


def first_dirty_offset(log: Log) -> int:
    """Return where the clean part ends; where the local log begins if that is not known."""
    start = log.local_log_start_offset
    return log.cleaned_upto if start <= log.cleaned_upto <= log.log_end_offset else start


def dirtiest(found: Iterable[Cleanable]) -> Cleanable | None:
    """Return the log to clean next."""
    return max((each for each in found if each.is_due), key=_ratio, default=None)


def is_roll_due(log: Log, now_ms: int) -> bool:
    """Return True if max.compaction.lag.ms demands that the active segment ends now.

    An append ends it in time as well. This is for logs that get none.
    """
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= MAX_LONG or not log.active.size or log.has_queued:
        return False
    is_old = log.active_segment.limits.age_ms(log.active, now_ms) > lag_ms
    return is_old and log.written_end <= log.high_watermark


def _ratio(found: Cleanable) -> float:
    return found.dirty_ratio


def _first_uncleanable_offset(log: Log, first_dirty: int, now_ms: int) -> int:
    upto = min(log.last_stable_offset, log.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms <= 0:
        return upto
    rolled = [each for each in log.segments.from_offset(first_dirty) if each is not log.active]
    log.resources.index_jobs.read_timestamps(rolled)
    for segment in rolled:
        if segment.largest_timestamp() > now_ms - lag_ms:
            return min(upto, segment.base_offset)
    return upto


def _delay_ms(log: Log, dirty_number: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= MAX_LONG:
        return 0
    rolled = list(log.segments)[dirty_number:-1][:_MOST_FIRST_BATCHES]
    timestamps = [first_timestamp(segment) for segment in rolled if segment.size]
    oldest = min((each for each in timestamps if each > 0), default=MAX_LONG)
    return max(now_ms - lag_ms - oldest, 0)


def first_timestamp(segment: Segment) -> int:
    """Return the timestamp of the first batch of a segment that is not empty."""
    return next(segment.batches_from(0)).max_timestamp
