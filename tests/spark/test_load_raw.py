"""Raw loads into each kind of table: every record once, continued by the next run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla_spark
from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.errors import Refused
from ottla.client.groups.groups import describe_groups
from ottla.client.groups.lag import group_lag
from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.run.early_answer import early_answer
from ottla_spark.loads.run.listener import Listener
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
FIRST_DAY_MS = 1_767_225_600_000  # 2026-01-01
KEPT = {"retention.ms": "-1"}  # however long ago that is


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "warehouse").mkdir()
    return {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }


def delta_rows(path: Path) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(path).to_pyarrow_table()


def iceberg_rows(catalog: dict[str, str], name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("c", **catalog).load_table(name).scan().to_arrow()


def test_parquet_in_batches_and_then_new_records(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(2)
    produce(name, 100)
    to = f"parquet:{tmp_path}/table"
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": spark}
    first = ottla_spark.load(name, to, max_records_per_batch=60, **options)
    assert (first.tally.records, first.tally.batches, first.lag) == (100, 2, 0)
    assert first.exit_code == 0
    assert early_answer(first.options) is not None, "nothing new, and no Spark is needed"
    produce(name, 11, first=100)
    assert early_answer(first.options) is None
    second = ottla_spark.load(name, to, **options)
    assert (second.tally.rows, second.tally.batches) == (11, 1)

    rows = spark.read.parquet(str(tmp_path / "table"))
    assert rows.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    found = sorted((bytes(r.key), bytes(r.value), r.partition) for r in rows.collect())
    expected = sorted((f"k{i}".encode(), f"v{i}".encode(), i % 2) for i in range(111))
    assert found == expected
    with Client(parse_addresses(bootstrap_servers)) as client:
        (group,) = describe_groups(client, [first.options.group_id])
        assert group.group == f"ottla-load.{name}.table." + first.options.group_id[-6:]
        assert sum(lag.lag or 0 for lag in group_lag(client, group)) == 0


def test_a_load_starts_after_a_kill_during_the_first_plan(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    produce(name, 5)
    offsets = tmp_path / "table" / "_ottla" / name / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.5ad0a3de-0b8c-4c47-a3f2-f6dc18f8a8a4.tmp").write_text("v1")
    to = f"parquet:{tmp_path}/table"
    result = ottla_spark.load(name, to, bootstrap_servers=bootstrap_servers, spark=spark)
    assert (result.tally.rows, result.exit_code) == (5, 0)
    assert spark.read.parquet(f"{tmp_path}/table").count() == 5


def test_delta_by_day_with_headers(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(1, configs=KEPT)
    produce(
        name,
        30,
        timestamp_ms=lambda i: FIRST_DAY_MS + (i % 3) * DAY_MS + i,
        headers=[("h", b"1")],
    )
    result = ottla_spark.load(
        name,
        f"delta:{tmp_path}/table",
        bootstrap_servers=bootstrap_servers,
        spark=spark,
        headers=True,
        partition_by="day(timestamp)",
        max_records_per_batch=20,
    )
    assert result.tally.batches == 2
    assert early_answer(result.options) is not None
    rows = delta_rows(tmp_path / "table")
    assert sorted(rows["offset"].to_pylist()) == list(range(30))
    assert sorted({str(day) for day in rows["timestamp_day"].to_pylist()}) == [
        "2026-01-01", "2026-01-02", "2026-01-03",
    ]  # fmt: skip
    assert rows["headers"].to_pylist()[0] == [{"key": "h", "value": b"1"}]


def test_iceberg_by_hour_and_column(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    catalog: dict[str, str],
) -> None:
    name = topic(2, configs=KEPT)
    produce(name, 40, timestamp_ms=lambda i: FIRST_DAY_MS + (i % 2) * 3_600_000)
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "spark": spark,
        "catalog": catalog,
        "partition_by": ["hour(timestamp)", "partition"],
    }
    ottla_spark.load(name, "iceberg:c.db.events", **options)
    produce(name, 5, first=40, timestamp_ms=lambda i: FIRST_DAY_MS)
    again = ottla_spark.load(name, "iceberg:c.db.events", **options)
    assert again.tally.rows == 5
    assert early_answer(again.options) is not None
    rows = iceberg_rows(catalog, "db.events")
    values = sorted(bytes(value) for value in rows["value"].to_pylist())
    assert values == sorted(f"v{i}".encode() for i in range(45))


def test_an_empty_topic_gives_an_empty_result(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, tmp_path: Path
) -> None:
    said: list[str] = []

    class Hears(Listener):
        def say(self, line: str) -> None:
            said.append(line)

    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "spark": spark,
        "listener": Hears(),
    }
    name = topic(1)
    raw = ottla_spark.load(name, f"delta:{tmp_path}/raw", **options)
    assert (raw.tally.records, raw.exit_code) == (0, 0)
    assert delta_rows(tmp_path / "raw").num_rows == 0
    json = ottla_spark.load(name, f"delta:{tmp_path}/json", format="json", **options)
    assert (json.tally.records, json.exit_code) == (0, 0)
    assert any("is empty" in line for line in said)


def test_options_that_do_not_match_the_table_are_refused(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name, other = topic(1), topic(1)
    produce(name, 3)
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": spark}
    load: Callable[..., object] = ottla_spark.load
    with pytest.raises(Refused, match="there is no topic nowhere"):
        load("nowhere", f"parquet:{tmp_path}/x", **options)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.parquet").write_bytes(b"")
    with pytest.raises(LoadUsageError, match=r"no load wrote, such as data\.parquet"):
        load(name, f"parquet:{tmp_path}/mine", **options)
    with pytest.raises(LoadUsageError, match="no column nothing"):
        load(name, f"parquet:{tmp_path}/x", partition_by="nothing", **options)
    load(name, f"parquet:{tmp_path}/table", **options)
    with pytest.raises(LoadUsageError, match="a parquet: table takes one topic"):
        load(other, f"parquet:{tmp_path}/table", **options)
    with pytest.raises(LoadUsageError, match="format 'raw', not 'json'"):
        load(name, f"parquet:{tmp_path}/table", format="json", schema="a INT", **options)
    with pytest.raises(LoadUsageError, match="another checkpoint"):
        load(name, f"parquet:{tmp_path}/table", checkpoint=str(tmp_path / "new"), **options)
    load(name, f"delta:{tmp_path}/delta", **options)
    with pytest.raises(LoadUsageError, match="another checkpoint"):
        load(name, f"delta:{tmp_path}/delta", checkpoint=str(tmp_path / "newer"), **options)
    with pytest.raises(LoadUsageError, match="is partitioned by nothing"):
        load(other, f"delta:{tmp_path}/delta", partition_by="key", **options)


def test_a_second_load_at_the_same_time_is_refused(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, tmp_path: Path
) -> None:
    from ottla_spark.loads.state.load_directory import LoadDirectory
    from ottla_spark.loads.state.storage import HadoopStorage

    name = topic(1)
    place = LoadDirectory(HadoopStorage(spark), f"{tmp_path}/table/_ottla/{name}")
    with place.lock(), pytest.raises(LoadError, match="is already running"):
        ottla_spark.load(
            name, f"delta:{tmp_path}/table", bootstrap_servers=bootstrap_servers, spark=spark
        )


def test_deleted_records_stop_a_load_unless_that_is_allowed(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    from ottla_spark.loads.errors import DataLost

    name = topic(1)
    to = f"parquet:{tmp_path}/table"
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": spark}
    produce(name, 10)
    ottla_spark.load(name, to, **options)
    produce(name, 20, first=10)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for done in admin.delete_records([TopicPartition(name, 0, 15)]).values():
        done.result(30)
    with pytest.raises(DataLost, match=f"{name}") as lost:
        ottla_spark.load(name, to, **options)
    assert lost.value.exit_code == 4
    ottla_spark.load(name, to, allow_data_loss=True, **options)
    offsets = [row.offset for row in spark.read.parquet(f"{tmp_path}/table").collect()]
    assert sorted(offsets) == [*range(10), *range(15, 30)]


def test_a_recreated_topic_is_detected(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient

    from ottla_spark.loads.errors import DataLost

    name = topic(1)
    to = f"parquet:{tmp_path}/table"
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": spark}
    produce(name, 10)
    ottla_spark.load(name, to, **options)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([name])[name].result(30)
    topic(1, name=name)
    produce(name, 15, first=100)  # it has grown past the checkpoint
    with pytest.raises(DataLost, match="created again since it was last loaded, up to offset 10"):
        ottla_spark.load(name, to, **options)
    ottla_spark.load(name, to, allow_data_loss=True, **options)
    again = ottla_spark.load(name, to, **options)
    assert (again.tally.rows, again.lag) == (0, 0)
    values = [bytes(row.value) for row in spark.read.parquet(f"{tmp_path}/table").collect()]
    wanted = [f"v{number}".encode() for number in [*range(10), *range(110, 115)]]
    assert sorted(values) == sorted(wanted)


def test_rows_that_are_not_where_the_table_is_are_not_committed(
    spark: SparkSession, tmp_path: Path, catalog: dict[str, str]
) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from ottla_spark.loads.targets.delta import DeltaTableWriter
    from ottla_spark.loads.targets.iceberg import IcebergTableWriter
    from ottla_spark.loads.targets.table_writer import RECORDS, Batch, TableWriter

    tables: list[TableWriter] = [
        DeltaTableWriter(spark, f"{tmp_path}/table", "t"),
        IcebergTableWriter(spark, "c.db.events", "t", catalog),
    ]
    for table in tables:
        measures = Observation("rows")
        seen = spark.range(10).observe(measures, F.count(F.lit(1)).alias(RECORDS))
        kept = seen.where("id < 7")  # as if an executor's files were on another machine's disk
        table.prepare(kept.schema, (), widen=False)
        with pytest.raises(LoadError, match="executors wrote 10 rows, but 7 are where the table"):
            table.add(Batch("query", 0), kept, measures, 0)
        assert table.last_batch("query") is None
        assert table.clean(Batch("query", 0)) == 1
    assert delta_rows(tmp_path / "table").num_rows == 0
    assert iceberg_rows(catalog, "db.events").num_rows == 0
