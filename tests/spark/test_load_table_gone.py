"""A table that was dropped or rolled back while its checkpoint stayed: refused, until --reset."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

import ottla_spark
from ottla_spark.loads.errors import LoadUsageError, RolledBack
from ottla_spark.pipelines.run.failures import QueryFailed
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Load = Callable[..., int]


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}


@pytest.fixture
def name(topic: MakeTopic, produce: Produce) -> str:
    """Return a topic with five records."""
    made = topic()
    produce(made, 5)
    return made


@pytest.fixture
def load(spark: SparkSession, bootstrap_servers: str) -> Load:
    """Return a function that loads and returns how many rows were added."""

    def run(name: str, to: str, **options: Any) -> int:
        given: dict[str, Any] = {"bootstrap_servers": bootstrap_servers, "spark": spark} | options
        return ottla_spark.load(name, to, **given).tally.rows

    return run


def test_parquet(
    spark: SparkSession, load: Load, name: str, produce: Produce, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    options: dict[str, Any] = {
        "checkpoint": f"{tmp_path}/load",
        "format": "json",
        "schema": "n INT",
        "dead_letters": f"parquet:{tmp_path}/dead",
    }
    produce(name, 5, value=lambda n: b'{"n": %d}' % n)
    assert load(name, f"parquet:{table}", **options) == 5
    assert spark.read.parquet(f"{tmp_path}/dead").count() == 5
    file = next(table.glob("part-*.parquet"))
    file.rename(tmp_path / "kept")
    with pytest.raises(RolledBack, match=rf"are gone: 1, such as {file.name}.*--reset"):
        load(name, f"parquet:{table}", **options)
    (tmp_path / "kept").rename(file)
    assert load(name, f"parquet:{table}", **options) == 0

    shutil.rmtree(table)
    with pytest.raises(RolledBack, match=r"batch 0 was loaded, but the table has none"):
        load(name, f"parquet:{table}", **options)
    assert not table.exists()
    assert load(name, f"parquet:{table}", reset=True, **options) == 5
    assert load(name, f"parquet:{table}", reset=True, **options) == 5
    assert spark.read.parquet(str(table)).count() == 5
    assert spark.read.parquet(f"{tmp_path}/dead").count() == 5
    assert len(list(table.glob("part-*.parquet"))) == 1


def test_delta(load: Load, name: str, topic: MakeTopic, produce: Produce, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table, to = tmp_path / "table", f"delta:{tmp_path}/table"
    assert load(name, to) == 5
    first = DeltaTable(table).version()
    produce(name, 5, first=5)
    assert load(name, to) == 5
    second = DeltaTable(table).version()
    DeltaTable(table).restore(first)
    with pytest.raises(RolledBack, match=r"restored to a version without batch 1.*--reset"):
        load(name, to)
    DeltaTable(table).restore(second)
    assert load(name, to) == 0

    shutil.rmtree(table / "_delta_log")
    with pytest.raises(RolledBack, match=r"batch 1 was loaded, but the table has none"):
        load(name, to)
    assert not (table / "_delta_log").exists()
    assert load(name, to, reset=True) == 10
    other = topic()
    produce(other, 1)
    assert load(name, to, reset=True) == 10
    assert sorted(DeltaTable(table).to_pyarrow_table()["offset"].to_pylist()) == list(range(10))
    load(other, to)
    with pytest.raises(LoadUsageError, match=rf"--reset deletes all rows .* and {other} also"):
        load(name, to, reset=True)
    assert load(name, to) == 0


def test_iceberg(load: Load, name: str, produce: Produce, catalog: dict[str, str]) -> None:
    from pyiceberg.catalog import load_catalog

    to = "iceberg:c.db.events"
    options = {"catalog": catalog}
    assert load(name, to, **options) == 5
    opened = load_catalog("c", **catalog)
    first = opened.load_table("db.events").metadata.current_snapshot_id
    assert first is not None
    produce(name, 5, first=5)
    assert load(name, to, **options) == 5
    opened.load_table("db.events").manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(RolledBack, match=r"rolled back to a snapshot without batch 1.*--reset"):
        load(name, to, **options)
    opened.drop_table("db.events")  # the checkpoint is where the table was
    with pytest.raises(RolledBack, match=r"batch 1 was loaded, but the table has none"):
        load(name, to, **options)
    assert not opened.table_exists("db.events")
    assert load(name, to, reset=True, **options) == 10
    assert load(name, to, reset=True, **options) == 10
    rows = opened.load_table("db.events").scan().to_arrow()
    assert sorted(rows["offset"].to_pylist()) == list(range(10))


def test_pipelines(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 1}\n')
    file = tmp_path / "p.yaml"
    text = """\
        name: p
        sources:
          numbers: {{files: in, format: json, schema: "n long", stream: true}}
        sinks:
          out: {{from: numbers, table: "{table}"}}
        """
    for kind in ("delta", "parquet"):
        state = tmp_path / "state"
        shutil.rmtree(state, ignore_errors=True)
        file.write_text(dedent(text.format(table=f"{kind}:{kind}")))
        pipeline = ottla_spark.pipeline(file, spark)
        pipeline.run(once=True)
        if kind == "delta":
            DeltaTable(tmp_path / kind).restore(0)
            with pytest.raises(QueryFailed, match=r"restored to a version without batch 0"):
                pipeline.run(once=True)
        shutil.rmtree(tmp_path / kind)
        with pytest.raises(QueryFailed, match=rf"start the sink over: .*{state}/p/out"):
            pipeline.run(once=True)
