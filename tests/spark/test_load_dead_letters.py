"""Dead letters in a Parquet table, of loads with batches that have none."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla_spark.loads.formats.format import REASON
from ottla_spark.loads.run.dead_letters import COLUMNS, DeadLetterTable
from ottla_spark.loads.targets.table_writer import Batch


@pytest.mark.parametrize("numbers", [(1, 2), (3, 9, 10, 45, 49, 50)])
def test_spark_reads_dead_letters_of_any_batches(
    spark: SparkSession, tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    path = f"{tmp_path}/dead"
    for count, number in enumerate(numbers, start=1):
        row = ("events", 0, number, datetime(2026, 11, 1, tzinfo=UTC), b"k", b"v", "why")
        misfits = spark.createDataFrame([row], [*COLUMNS, REASON])
        batch = Batch("query", number)
        dead_letters = DeadLetterTable(spark, path)
        assert not dead_letters.holds(batch)
        dead_letters.put(batch, misfits)
        assert dead_letters.holds(batch)
        found = [row.offset for row in spark.read.parquet(path).collect()]
        assert sorted(found) == list(numbers[:count])
