"""Compaction: fewer files, the same rows, and later loads that continue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla_spark
from ottla_spark.loads.state.storage import Storage
from ottla_spark.loads.targets import parquet_compaction
from ottla_spark.loads.targets.parquet_sink_log import SinkLog
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_parquet_files_are_merged_and_stay_in_the_sinks_log(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic(1, configs={"retention.ms": "-1"})
    table = str(tmp_path / "table")
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "spark": spark,
        "compact": True,
        "partition_by": "day(timestamp)",
    }
    day = 86_400_000
    produce(name, 30, timestamp_ms=lambda i: 1_767_225_600_000 + (i % 2) * day)
    before = spark.read.format("parquet")
    first = ottla_spark.load(name, f"parquet:{table}", max_records_per_batch=10, **options)
    assert (first.tally.files, first.tally.compacted_files) == (6, 6)
    log = SinkLog(Storage(spark), table)
    assert len(log.files()) == 2
    # What was replaced stays for those who still read it, and is not part of the table.
    assert len(list(Path(table).rglob("part-*.parquet"))) == 8
    offsets = [row.offset for row in before.load(table).collect()]
    assert sorted(offsets) == list(range(30))

    monkeypatch.setattr(parquet_compaction, "REPLACED_KEPT_MS", 0)
    for replaced in Path(table, "_ottla").glob("replaced-*"):
        replaced.rename(replaced.with_name("replaced-0.json"))
    produce(name, 5, first=30, timestamp_ms=lambda i: 1_767_225_600_000)
    ottla_spark.load(name, f"parquet:{table}", **options)
    rows = spark.read.parquet(table)
    assert sorted(row.offset for row in rows.collect()) == list(range(35))
    days = {str(row.timestamp_day) for row in rows.collect()}
    assert days == {"2026-01-01", "2026-01-02"}
    listed = {Path(file.path).name for file in log.files()}
    assert len(listed) == 2


def test_delta_files_are_merged(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    name = topic(1)
    produce(name, 30)
    result = ottla_spark.load(
        name,
        f"delta:{tmp_path}/table",
        bootstrap_servers=bootstrap_servers,
        spark=spark,
        compact=True,
        max_records_per_batch=10,
    )
    assert result.tally.compacted_files >= 3
    table = DeltaTable(tmp_path / "table")
    assert len(table.file_uris()) == 1
    assert sorted(table.to_pyarrow_table()["offset"].to_pylist()) == list(range(30))
