"""Filters of a batch query that restrict what is fetched: topic, partition, offset, timestamp.

Spark evaluates every filter again, so a range may be too large but never too small:

- topic, partition and offset restrict the ranges exactly;
- a lower bound of the timestamp moves the start to the first record at or after that time. All
  records before it are older, whatever order the timestamps have;
- an upper bound of the timestamp restricts nothing, because older records may follow newer ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark_ottla.fetch.offset_range import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
_NAMES = frozenset({"EqualTo", "EqualNullSafe", "In"})


def spark_pushes_filters() -> bool:
    """Return whether this process is the one in which Spark pushes filters to a reader.

    A reader with `pushFilters` in any other process makes the query fail if the setting
    spark.sql.python.filterPushdown.enabled is off, which is Spark's default.
    """
    return _PLANNER in sys.orig_argv


@dataclass(frozen=True)
class Interval:
    """Whole numbers from `low` to `high`, both included; None is no bound."""

    low: int | None = None
    high: int | None = None

    def within(self, low: int | None, high: int | None) -> Interval:
        """Return the numbers that are in both intervals."""
        lows = [bound for bound in (self.low, low) if bound is not None]
        highs = [bound for bound in (self.high, high) if bound is not None]
        return Interval(max(lows, default=None), min(highs, default=None))

    def has(self, number: int) -> bool:
        """Return whether a number is in the interval."""
        above = self.low is None or number >= self.low
        return above and (self.high is None or number <= self.high)


@dataclass(frozen=True)
class PushedFilters:
    """What the filters say. `topics` and `partitions` are None if any is wanted."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition: Interval = Interval()
    offset: Interval = Interval()
    from_ms: int | None = None

    def restrict(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of the ranges that can have matching records, without timestamps."""
        return [
            clamped(each, self.offset.low, self.offset.high)
            for each in ranges
            if (self.topics is None or each.topic in self.topics)
            and (self.partitions is None or each.partition in self.partitions)
            and self.partition.has(each.partition)
        ]


def clamped(found: OffsetRange, low: int | None, high: int | None) -> OffsetRange:
    """Return the part of a range between two offsets, both included. It may be empty."""
    start = found.start if low is None else max(found.start, low)
    end = found.end if high is None else min(found.end, high + 1)
    return replace(found, start=min(start, max(end, found.start)), end=max(end, found.start))


def pushed_filters(filters: Iterable[Filter]) -> PushedFilters:
    """Return what the filters say about topic, partition, offset and timestamp."""
    found = PushedFilters()
    for each in filters:
        column: tuple[str, ...] = getattr(each, "attribute", ())
        if len(column) == 1:
            found = _with(found, column[0], type(each).__name__, getattr(each, "value", None))
    return found


def _with(found: PushedFilters, column: str, kind: str, value: object) -> PushedFilters:
    values = list(value) if kind == "In" and isinstance(value, list | tuple) else [value]
    if column == "topic" and kind in _NAMES:
        named = frozenset(text for text in values if isinstance(text, str))
        return replace(found, topics=named if found.topics is None else found.topics & named)
    if column == "timestamp":
        return replace(found, from_ms=_later(found.from_ms, _lower_ms(kind, value)))
    numbers = [number for number in values if type(number) is int]
    if column not in {"partition", "offset"} or not numbers or len(numbers) < len(values):
        return found
    low, high = _bounds(kind, numbers)
    if column == "offset":
        return replace(found, offset=found.offset.within(low, high))
    if kind in _NAMES:
        named_numbers = frozenset(numbers)
        known = found.partitions
        return replace(found, partitions=named_numbers if known is None else known & named_numbers)
    return replace(found, partition=found.partition.within(low, high))


def _bounds(kind: str, numbers: list[int]) -> tuple[int | None, int | None]:
    """Return the lowest and the highest number that a filter lets through."""
    if kind in _NAMES:
        return min(numbers), max(numbers)
    (number,) = numbers
    return {
        "GreaterThan": (number + 1, None),
        "GreaterThanOrEqual": (number, None),
        "LessThan": (None, number - 1),
        "LessThanOrEqual": (None, number),
    }.get(kind, (None, None))


def _lower_ms(kind: str, value: object) -> int | None:
    """Return a lower bound in milliseconds, rounded down; None if the filter has none."""
    lowers = {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}
    if kind not in lowers or not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return max(0, int(value.timestamp() * 1000 // 1))


def _later(one: int | None, other: int | None) -> int | None:
    known = [bound for bound in (one, other) if bound is not None]
    return max(known, default=None)
