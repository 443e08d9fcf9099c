"""Reads topics in a batch query: the driver plans the offsets once, executors read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.model.ids import TopicPartition
from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.options.offset_json import Offsets
from pyspark_ottla.options.offset_spec import LATEST, AtOffsets, Everywhere
from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.options.source_options import BatchOptions
from pyspark_ottla.source.data_loss import Loss, LossReason, report_losses
from pyspark_ottla.source.offset_lookup import (
    Metadata,
    OffsetLookup,
    is_unmatched,
    offset_lookup,
    retry_missing,
)
from pyspark_ottla.source.pushed_filters import PushedFilters, clamped, pushed_filters
from pyspark_ottla.source.range_reader import read_task
from pyspark_ottla.source.resolved_offsets import resolve
from pyspark_ottla.source.task_plan import plan_tasks

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.datasource import Filter


class BatchReader(DataSourceReader):
    """Reads each partition from its starting offset to its ending offset."""

    def __init__(self, options: BatchOptions) -> None:
        self._options = options
        self._filters = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the query. Spark calls this once, when it plans the query."""
        source = self._options.source
        lookup = offset_lookup(source)
        try:
            ranges = self._ranges(lookup)
        finally:
            lookup.close()
        return list(plan_tasks(ranges, source.min_partitions, source.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the records of one task as Arrow batches. Spark calls this on an executor."""
        return read_task(partition, self._options.source)

    def _ranges(self, lookup: OffsetLookup) -> list[OffsetRange]:
        source = self._options.source
        metadata = retry_missing(source, lookup.metadata)
        start = resolve(lookup, metadata, self._options.start).offsets
        end = resolve(lookup, metadata, self._options.end).offsets
        losses: list[Loss] = []
        if isinstance(self._options.start, AtOffsets) or isinstance(self._options.end, AtOffsets):
            latest = lookup.offsets(metadata, dict.fromkeys(metadata, LATEST))
            losses = _after_end(start, latest) + _after_end(end, latest)
            report_losses(losses, fail=source.fail_on_data_loss)
            end = {partition: min(offset, latest[partition]) for partition, offset in end.items()}
        if not losses and not isinstance(self._options.start, Everywhere):
            _check_order(start, end)
        return self._filtered(lookup, metadata, _offset_ranges(metadata, start, end))

    def _filtered(
        self, lookup: OffsetLookup, metadata: Metadata, ranges: list[OffsetRange]
    ) -> list[OffsetRange]:
        """Return the parts of the ranges that can have records that the query wants."""
        if self._filters == PushedFilters():
            return ranges
        wanted = [each for each in self._filters.restrict(ranges) if each.start < each.end]
        if self._filters.from_ms is None:
            return wanted
        places = {TopicPartition(each.topic, each.partition): each for each in wanted}
        first = lookup.offsets(metadata, dict.fromkeys(places, self._filters.from_ms))
        later = [
            clamped(each, each.end if is_unmatched(first[place]) else first[place], None)
            for place, each in places.items()
        ]
        return [each for each in later if each.start < each.end]


class FilteredBatchReader(BatchReader):
    """A reader that leaves out what the filters of the query do not want.

    Spark (4.3) keeps the plan of this reader for every use of the same `load()`. Another query,
    or another branch of the same one, would get the ranges of the filters that were pushed last.
    So the option `pushFilters` asks for this reader where a DataFrame is used once.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Take the filters into account, and return all of them: Spark evaluates them again."""
        self._filters = pushed_filters(filters)
        return filters


def _offset_ranges(metadata: Metadata, start: Offsets, end: Offsets) -> list[OffsetRange]:
    return [
        OffsetRange(
            partition.topic,
            metadata[partition].topic_id,
            partition.partition,
            start[partition],
            end[partition],
        )
        for partition in sorted(metadata)
    ]


def _after_end(offsets: Offsets, latest: Offsets) -> list[Loss]:
    return [
        Loss(partition, latest[partition], offset, LossReason.LOG_TRUNCATED)
        for partition, offset in sorted(offsets.items())
        if offset > latest[partition]
    ]


def _check_order(start: Offsets, end: Offsets) -> None:
    for partition, offset in sorted(start.items()):
        if offset > end[partition]:
            raise OptionError(
                f"{partition} starts at offset {offset}, after its end {end[partition]}:"
                " correct the starting or ending offsets or timestamps"
            )
