"""Large records: batches and row groups are limited in bytes, and a batch is planned again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import ottla_spark
from ottla_spark.loads.errors import LoadError
from ottla_spark.loads.run.batch_loader import BatchLoader
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD = 500_000


def test_batches_files_and_row_groups_are_limited_in_bytes(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(1)
    produce(name, 60, value=lambda _: os.urandom(RECORD))
    result = ottla_spark.load(
        name,
        f"delta:{tmp_path}/table",
        bootstrap_servers=bootstrap_servers,
        spark=spark,
        max_bytes_per_batch=20 * RECORD,
        target_file_size=5 * RECORD,
    )
    assert (result.tally.rows, result.tally.batches) == (60, 4)
    files = sorted((tmp_path / "table" / "data").rglob("part-*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == 60
    assert max(file.stat().st_size for file in files) < 6.5 * RECORD
    assert len(files) <= 16


def test_spark_looks_at_the_size_of_a_row_group_before_a_hundred_rows(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(1)
    produce(name, 20, value=lambda _: os.urandom(RECORD))
    own = spark.newSession()
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": own}
    own.sparkContext._jsc.hadoopConfiguration().set("parquet.block.size", str(4 * RECORD))
    try:
        ottla_spark.load(name, f"delta:{tmp_path}/table", **options)
    finally:
        own.sparkContext._jsc.hadoopConfiguration().unset("parquet.block.size")
    (file,) = (tmp_path / "table" / "data").rglob("part-*.parquet")
    footer = pq.read_metadata(file)
    groups = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    assert sum(groups) == 20
    assert max(groups) <= 5


def test_a_batch_that_failed_is_planned_again(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from deltalake import DeltaTable

    name = topic(1)
    produce(name, 16)
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": spark}
    to = f"delta:{tmp_path}/table"

    def fail(*_: object) -> None:
        raise LoadError("no memory")

    with monkeypatch.context() as context:
        context.setattr(BatchLoader, "_write", fail)
        with pytest.raises(LoadError, match="no memory"):
            ottla_spark.load(name, to, **options)
        with pytest.raises(LoadError, match="no memory"):
            ottla_spark.load(name, to, max_records_per_batch=16, **options)
    # It failed twice, so the third run takes a quarter.
    result = ottla_spark.load(name, to, max_records_per_batch=16, **options)
    assert (result.tally.rows, result.tally.batches) == (16, 4)
    produce(name, 16, first=16)
    result = ottla_spark.load(name, to, max_records_per_batch=16, **options)
    assert (result.tally.rows, result.tally.batches) == (16, 1)
    offsets = DeltaTable(tmp_path / "table").to_pyarrow_table()["offset"].to_pylist()
    assert sorted(offsets) == list(range(32))
