"""The options that say where a query starts and where a batch query ends.

There are three ways. The first one that is set wins, as in Spark's own source: one timestamp
for all partitions; a timestamp for each partition; `earliest`, `latest` or an offset for each
partition (-2 is earliest, -1 is latest).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.model.ids import TopicPartition
from pyspark_ottla.options.offset_json import (
    OFFSETS_EXAMPLE,
    TIMESTAMPS_EXAMPLE,
    Offsets,
    offsets_from_json,
)
from pyspark_ottla.options.option_values import OptionError, whole_number

EARLIEST = -2
LATEST = -1


class NoMatch(Enum):
    """What to do in a partition without a record at or after the starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True)
class Everywhere:
    """EARLIEST or LATEST for all partitions."""

    offset: int


@dataclass(frozen=True)
class AtOffsets:
    """An offset, EARLIEST or LATEST for each partition."""

    offsets: Offsets


@dataclass(frozen=True)
class AtTimestamp:
    """The first record at or after one timestamp, for all partitions."""

    timestamp_ms: int
    no_match: NoMatch = NoMatch.ERROR


@dataclass(frozen=True)
class AtTimestamps:
    """The first record at or after a timestamp for each partition."""

    timestamps_ms: dict[TopicPartition, int]
    no_match: NoMatch = NoMatch.ERROR


OffsetSpec = Everywhere | AtOffsets | AtTimestamp | AtTimestamps


@dataclass(frozen=True)
class _Names:
    timestamp: str
    timestamps: str
    offsets: str


_STARTING = _Names("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDING = _Names("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
ENDING_OPTIONS = (_ENDING.offsets, _ENDING.timestamps, _ENDING.timestamp)


def starting_spec(options: Mapping[str, str], default: int) -> OffsetSpec:
    """Return where a query starts. `default` is EARLIEST or LATEST."""
    return _spec(options, _STARTING, _no_match(options), default)


def ending_spec(options: Mapping[str, str]) -> OffsetSpec:
    """Return where a batch query ends.

    A partition without a record at or after the ending timestamp is read to its end.
    """
    return _spec(options, _ENDING, NoMatch.LATEST, LATEST)


def check_batch(start: OffsetSpec, end: OffsetSpec) -> None:
    """Raise OptionError for a start or end that a batch query cannot have."""
    _refuse(
        start,
        LATEST,
        "startingOffsets",
        "a batch query cannot start at latest",
    )
    _refuse(
        end,
        EARLIEST,
        "endingOffsets",
        "a batch query cannot end at earliest",
    )
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_pair(start.offsets, end.offsets, "offset")
    if isinstance(start, AtTimestamps) and isinstance(end, AtTimestamps):
        _check_pair(start.timestamps_ms, end.timestamps_ms, "timestamp")


def _spec(options: Mapping[str, str], names: _Names, no_match: NoMatch, default: int) -> OffsetSpec:
    if (text := options.get(names.timestamp)) is not None:
        return AtTimestamp(_timestamp(names.timestamp, text), no_match)
    if (text := options.get(names.timestamps)) is not None:
        timestamps = offsets_from_json(names.timestamps, text, TIMESTAMPS_EXAMPLE)
        for partition, timestamp in timestamps.items():
            _timestamp(f"{names.timestamps} of {partition}", str(timestamp))
        return AtTimestamps(timestamps, no_match)
    text = options.get(names.offsets, "").strip()
    symbol = {"": default, "earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if symbol is not None and (text or names.offsets not in options):
        return Everywhere(symbol)
    example = f"earliest, latest or {OFFSETS_EXAMPLE}"
    return AtOffsets(offsets_from_json(names.offsets, text, example))


def _timestamp(name: str, text: str) -> int:
    number = whole_number(text)
    if number is None or number < 0:
        raise OptionError(f"{name} is {text!r}: expected milliseconds since 1970")
    return number


def _no_match(options: Mapping[str, str]) -> NoMatch:
    name = "startingOffsetsByTimestampStrategy"
    text = options.get(name, NoMatch.ERROR.value)
    try:
        return NoMatch(text.strip().lower())
    except ValueError:
        raise OptionError(f"{name} is {text!r}: expected error or latest") from None


def _refuse(spec: OffsetSpec, symbol: int, name: str, why: str) -> None:
    if spec == Everywhere(symbol):
        raise OptionError(f"{name}: {why}")
    if isinstance(spec, AtOffsets):
        for partition, offset in spec.offsets.items():
            if offset == symbol:
                raise OptionError(f"{name} of {partition} is {symbol}: {why}")


def _check_pair(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], what: str
) -> None:
    if start.keys() != end.keys():
        odd = ", ".join(str(partition) for partition in sorted(start.keys() ^ end.keys()))
        raise OptionError(
            f"the starting and ending {what}s must name the same partitions; only one of them"
            f" names {odd}"
        )
    for partition, first in start.items():
        if first >= 0 and 0 <= end[partition] < first:
            raise OptionError(
                f"{partition} starts at {what} {first}, after its end {end[partition]}:"
                f" lower the start or raise the end"
            )
