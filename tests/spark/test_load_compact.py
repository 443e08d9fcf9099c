"""Compaction: fewer files, the same rows, and later loads that continue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla_spark
from ottla_spark.loads.state.storage import HadoopStorage
from ottla_spark.loads.targets.parquet import TARGET, ParquetTableWriter
from ottla_spark.loads.targets.parquet_compaction import MARK
from ottla_spark.loads.targets.parquet_sink_log import SinkLog
from ottla_spark.loads.targets.table_writer import Batch
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def listed_values(table: Path, column: str) -> list[int]:
    """Return what a reader sees that lists the directory, such as DuckDB or Polars."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    schema = pa.schema([(column, pa.int64())])  # as DuckDB, do not rely on the first file alone
    rows = ds.dataset(table, schema, format="parquet", partitioning="hive").to_table([column])
    return [int(value) for value in rows[column].to_pylist()]


def test_parquet_files_are_merged_and_stay_in_the_sinks_log(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
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
    log = SinkLog(HadoopStorage(spark), table)
    assert len(log.files()) == 2
    # What was replaced is gone, so readers of the directory see every row once too.
    assert len(list(Path(table).rglob("part-*.parquet"))) == 2
    assert sorted(listed_values(Path(table), "offset")) == list(range(30))
    offsets = [row.offset for row in before.load(table).collect()]
    assert sorted(offsets) == list(range(30))

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


class Crash(BaseException):
    """The process is killed here."""


@pytest.mark.parametrize("crash_at", [None, 0, 1, 3, 4])
def test_readers_of_the_directory_see_each_row_once_or_fail_and_a_crash_is_repaired(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int | None
) -> None:
    from pyspark.sql import Observation

    place = tmp_path / "table"
    spark = spark.newSession()  # a writer changes settings of its session
    table = ParquetTableWriter(spark, str(place), compacted=True)
    for number in range(3):
        rows = spark.range(10 * number, 10 * number + 10).coalesce(1)
        table.add(Batch("query", number), rows, Observation(), 0)
    wanted = list(range(30))
    seen: list[int | str] = []
    create, move, remove = HadoopStorage.create_text, HadoopStorage.move, HadoopStorage.remove

    def read() -> int | str:
        try:
            return len(listed_values(place, "id"))
        except (OSError, ValueError) as error:  # Arrow raises either
            return "marked" if MARK in str(error) else str(error)

    def watched(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(storage: HadoopStorage, *words: str) -> Any:
            if crash_at == len(seen):
                raise Crash
            seen.append(read())
            return step(storage, *words)

        return run

    with monkeypatch.context() as context:
        context.setattr(HadoopStorage, "create_text", watched(create))
        context.setattr(HadoopStorage, "move", watched(move))
        context.setattr(HadoopStorage, "remove", watched(remove))
        if crash_at is None:
            assert table.compact(1 << 20) == 3
        else:
            with suppress(Crash):
                table.compact(1 << 20)
    # The mark, one move into the table, three old files, the mark again, the hidden directory.
    assert seen == [30, *["marked"] * 5, 30][: len(seen)]
    glance = TARGET.glance(str(place), "topic", catalog={})
    assert glance is not None
    assert glance.has_leftovers == (crash_at in {1, 3, 4})
    assert sorted(row.id for row in spark.read.parquet(str(place)).collect()) == wanted
    again = ParquetTableWriter(spark, str(place), compacted=True)
    again.clean(Batch("query", 3))
    assert sorted(listed_values(place, "id")) == wanted
    assert again.missing_files() == []
    assert not (place / "_compact").exists()
    assert not (place / MARK).exists()
