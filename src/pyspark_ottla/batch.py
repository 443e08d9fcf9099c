"""A batch read: the driver plans the offsets once, executors read them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_ottla.errors import MissingTopics
from pyspark_ottla.loss import Loss, Why, report_losses
from pyspark_ottla.offset_json import Offsets
from pyspark_ottla.offset_reader import OffsetReader, Places
from pyspark_ottla.offset_spec import LATEST, AtOffsets, Everywhere
from pyspark_ottla.option_values import OptionError
from pyspark_ottla.options import BatchOptions, SourceOptions
from pyspark_ottla.planning import plan_tasks
from pyspark_ottla.ranges import OffsetRange, ReadTask
from pyspark_ottla.read_settings import ReadSettings
from pyspark_ottla.resolving import resolve

if TYPE_CHECKING:
    from pyarrow import RecordBatch

T = TypeVar("T")


class BatchReader(DataSourceReader):
    """Reads from the starting to the ending offsets of each partition."""

    def __init__(self, options: BatchOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The tasks; called once by Spark when it plans the query."""
        source = self._options.source
        reader = offset_reader(source)
        try:
            ranges = self._ranges(reader)
        finally:
            reader.close()
        return list(plan_tasks(ranges, source.min_partitions, source.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The records of one task, as Arrow; called on an executor."""
        return read_task(partition, self._options.source)

    def _ranges(self, reader: OffsetReader) -> list[OffsetRange]:
        source = self._options.source
        places = patiently(source, reader.places)
        start = resolve(reader, places, self._options.start).offsets
        end = resolve(reader, places, self._options.end).offsets
        losses: list[Loss] = []
        if isinstance(self._options.start, AtOffsets) or isinstance(self._options.end, AtOffsets):
            latest = reader.offsets(places, dict.fromkeys(places, LATEST))
            losses = _beyond(start, latest) + _beyond(end, latest)
            report_losses(losses, fail=source.fail_on_data_loss)
            end = {partition: min(offset, latest[partition]) for partition, offset in end.items()}
        if not losses and not isinstance(self._options.start, Everywhere):
            _check_order(start, end)
        return offset_ranges(places, start, end)


def offset_reader(source: SourceOptions) -> OffsetReader:
    """A reader of offsets as the options want it."""
    return OffsetReader(
        source.kafka.client, source.subscription, read_committed=source.kafka.read_committed
    )


def patiently(source: SourceOptions, look: Callable[[], T]) -> T:
    """`look` again while topics are missing: a cluster may not show a new one at once."""
    for _ in range(source.attempts - 1):
        try:
            return look()
        except MissingTopics:
            time.sleep(source.attempt_interval_ms / 1000)
    return look()


def offset_ranges(places: Places, start: Offsets, end: Offsets) -> list[OffsetRange]:
    """What lies between two sets of offsets of the same partitions."""
    return [
        OffsetRange(
            partition.topic,
            places[partition].topic_id,
            partition.partition,
            start[partition],
            end[partition],
        )
        for partition in sorted(places)
    ]


def read_task(partition: InputPartition, source: SourceOptions) -> Iterator[RecordBatch]:
    """The records of a task; none for the placeholder that Spark makes of an empty plan."""
    from pyspark_ottla.reading import read_ranges

    if isinstance(partition, ReadTask):
        yield from read_ranges(partition.ranges, _read_settings(source))


def _read_settings(source: SourceOptions) -> ReadSettings:
    kafka = source.kafka
    settings = ReadSettings(
        client=kafka.client,
        columns=source.columns,
        read_committed=kafka.read_committed,
        fail_on_data_loss=source.fail_on_data_loss,
        check_crcs=kafka.check_crcs,
    )
    if kafka.fetch_max_bytes is not None:
        settings = replace(settings, fetch_max_bytes=kafka.fetch_max_bytes)
    if kafka.max_partition_fetch_bytes is not None:
        settings = replace(settings, max_partition_fetch_bytes=kafka.max_partition_fetch_bytes)
    if kafka.fetch_max_wait_ms is not None:
        settings = replace(settings, fetch_max_wait_ms=kafka.fetch_max_wait_ms)
    return settings


def _beyond(offsets: Offsets, latest: Offsets) -> list[Loss]:
    return [
        Loss(partition, latest[partition], offset, Why.LOG_TRUNCATED)
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
