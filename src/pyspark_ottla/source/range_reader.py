"""Reads the ranges of a task as Arrow batches, on an executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.options.read_settings import ReadSettings, read_settings
from pyspark_ottla.options.source_options import SourceOptions
from pyspark_ottla.source.task_plan import ReadTask
from pyspark_ottla.worker_gc import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa


def read_task(partition: InputPartition, source: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task. Spark turns an empty plan into a task without ranges."""
    if isinstance(partition, ReadTask):
        yield from read_ranges(partition.ranges, read_settings(source))


def read_ranges(ranges: Sequence[OffsetRange], settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Yield every record of the ranges, in offset order within each range.

    Control records are left out. With `read_committed`, records of aborted transactions are
    left out too. Offsets that compaction removed are skipped.

    Raise DataLoss for offsets that are gone, or log a warning if `fail_on_data_loss` is false.
    Raise ClientError if the cluster does not answer within the request timeout.
    """
    # Imported here because planning does not need numba and the compiled loops.
    from pyspark_ottla.decode.decoder import Decoder
    from pyspark_ottla.fetch.range_fetcher import RangeFetcher

    decoder = Decoder(settings.columns, check_crcs=settings.check_crcs)
    with (
        settings.client.connect() as client,
        closing(RangeFetcher(client, ranges, settings)) as fetcher,
    ):
        for fetched in fetcher.fetch():
            yield from decoder.decode(fetched)
    last = decoder.finish()
    if last is not None:
        yield last
    freeze_modules("reading")
