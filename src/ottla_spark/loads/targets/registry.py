"""The table that a target means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.targets.address import Kind
from ottla_spark.loads.targets.delta import DeltaTarget
from ottla_spark.loads.targets.iceberg import IcebergTarget
from ottla_spark.loads.targets.parquet import ParquetTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla_spark.loads.targets.table_writer import Table


def open_table(spark: SparkSession, options: LoadOptions) -> Table:
    """The table of a load, which need not exist yet."""
    place = options.to.place
    if options.to.kind is Kind.PARQUET:
        return ParquetTable(spark, place, compacted=options.compact)
    if options.to.kind is Kind.DELTA:
        return DeltaTarget(spark, place, options.topic)
    return IcebergTarget(spark, place, options.topic, options.catalog)
