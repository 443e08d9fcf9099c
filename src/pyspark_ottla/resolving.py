"""From what the options say (`offset_spec`) to offsets of the partitions that there are."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from pyspark_ottla.offset_json import Offsets
from pyspark_ottla.offset_reader import OffsetReader, Places, is_unmatched
from pyspark_ottla.offset_spec import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    NoMatch,
    OffsetSpec,
)
from pyspark_ottla.option_values import OptionError

_NAMES_SHOWN = 5


class Resolved(NamedTuple):
    """An offset for each partition; `at_end` are those that stand for wherever the log ends."""

    offsets: Offsets
    at_end: frozenset[TopicPartition]


def resolve(reader: OffsetReader, places: Places, spec: OffsetSpec) -> Resolved:
    """The offsets that `spec` means now; OptionError when it does not fit the partitions."""
    wanted = _offsets_or_symbols(reader, places, spec)
    symbols = {partition: offset for partition, offset in wanted.items() if offset < 0}
    known = {partition: offset for partition, offset in wanted.items() if offset >= 0}
    at_end = frozenset(partition for partition, offset in symbols.items() if offset == LATEST)
    return Resolved(known | reader.offsets(places, symbols), at_end)


def _offsets_or_symbols(reader: OffsetReader, places: Places, spec: OffsetSpec) -> Offsets:
    if isinstance(spec, Everywhere):
        return dict.fromkeys(places, spec.offset)
    if isinstance(spec, AtOffsets):
        _check_same(spec.offsets.keys(), places.keys(), "offsets")
        return dict(spec.offsets)
    if isinstance(spec, AtTimestamp):
        timestamps = dict.fromkeys(places, spec.timestamp_ms)
    else:
        _check_same(spec.timestamps_ms.keys(), places.keys(), "timestamps")
        timestamps = dict(spec.timestamps_ms)
    return _by_timestamp(reader.offsets(places, timestamps), timestamps, spec)


def _by_timestamp(
    found: Offsets, timestamps: Mapping[TopicPartition, int], spec: AtTimestamp | AtTimestamps
) -> Offsets:
    late = sorted(partition for partition, offset in found.items() if is_unmatched(offset))
    if late and spec.no_match is NoMatch.ERROR:
        raise OptionError(
            f"no record of {_some(late)} is at or after the timestamp {timestamps[late[0]]}; to"
            " start at the end there, set startingOffsetsByTimestampStrategy to latest"
        )
    return found | dict.fromkeys(late, LATEST)


def _check_same(named: Set[TopicPartition], there: Set[TopicPartition], what: str) -> None:
    if unknown := sorted(named - there):
        raise OptionError(f"{what} are given for {_some(unknown)}, which the query does not read")
    if left_out := sorted(there - named):
        raise OptionError(
            f"{what} must be given for every partition that is read: {_some(left_out)} is left"
            f" out. For offsets, {EARLIEST} stands for the earliest and {LATEST} for the latest"
        )


def _some(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(str(partition) for partition in partitions[:_NAMES_SHOWN])
    more = len(partitions) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
