"""Turns the starting or ending position in the options into an offset for each partition."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from pyspark_ottla.options.offset_json import Offsets
from pyspark_ottla.options.offset_spec import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    NoMatch,
    OffsetSpec,
)
from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.source.offset_lookup import Metadata, OffsetLookup, is_unmatched

_NAMES_SHOWN = 5


class ResolvedOffsets(NamedTuple):
    """An offset for each partition. `at_end` has the partitions that were asked for `latest`."""

    offsets: Offsets
    at_end: frozenset[TopicPartition]


def resolve(lookup: OffsetLookup, metadata: Metadata, spec: OffsetSpec) -> ResolvedOffsets:
    """Return the offsets that `spec` means now. Raise OptionError if partitions do not match."""
    wanted = _offsets_or_symbols(lookup, metadata, spec)
    symbols = {partition: offset for partition, offset in wanted.items() if offset < 0}
    known = {partition: offset for partition, offset in wanted.items() if offset >= 0}
    at_end = frozenset(partition for partition, offset in symbols.items() if offset == LATEST)
    return ResolvedOffsets(known | lookup.offsets(metadata, symbols), at_end)


def _offsets_or_symbols(lookup: OffsetLookup, metadata: Metadata, spec: OffsetSpec) -> Offsets:
    if isinstance(spec, Everywhere):
        return dict.fromkeys(metadata, spec.offset)
    if isinstance(spec, AtOffsets):
        _check_same(spec.offsets.keys(), metadata.keys(), "offsets")
        return dict(spec.offsets)
    if isinstance(spec, AtTimestamp):
        timestamps = dict.fromkeys(metadata, spec.timestamp_ms)
    else:
        _check_same(spec.timestamps_ms.keys(), metadata.keys(), "timestamps")
        timestamps = dict(spec.timestamps_ms)
    return _by_timestamp(lookup.offsets(metadata, timestamps), timestamps, spec)


def _by_timestamp(
    found: Offsets, timestamps: Mapping[TopicPartition, int], spec: AtTimestamp | AtTimestamps
) -> Offsets:
    late = sorted(partition for partition, offset in found.items() if is_unmatched(offset))
    if late and spec.no_match is NoMatch.ERROR:
        raise OptionError(
            f"no record of {_some(late)} is at or after the timestamp {timestamps[late[0]]}. To"
            " start at the end of such a partition, set startingOffsetsByTimestampStrategy to"
            " latest"
        )
    return found | dict.fromkeys(late, LATEST)


def _check_same(named: Set[TopicPartition], there: Set[TopicPartition], what: str) -> None:
    if unknown := sorted(named - there):
        raise OptionError(
            f"{what} are given for {_some(unknown)}, which the query does not read: remove them"
        )
    if left_out := sorted(there - named):
        raise OptionError(
            f"{what} must be given for every partition that the query reads: add {_some(left_out)}."
            f" For offsets, {EARLIEST} means earliest and {LATEST} means latest"
        )


def _some(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(str(partition) for partition in partitions[:_NAMES_SHOWN])
    more = len(partitions) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
