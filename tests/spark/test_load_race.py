"""Two first loads of one topic with different checkpoints: the table takes the rows of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as f

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.targets.address import parse_address
from ottla_spark.loads.targets.table_writer import RECORDS, Batch, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINE, OTHER = "11111111-mine", "22222222-other"


def observed(spark: SparkSession) -> tuple[DataFrame, Observation]:
    measures = Observation()
    rows = spark.range(3).coalesce(1).observe(measures, f.count(f.lit(1)).alias(RECORDS))
    return rows, measures


def add(table: TableWriter, spark: SparkSession, query_id: str, batch: int) -> None:
    table.add(Batch(query_id, batch), *observed(spark), 0)


@pytest.fixture(params=["parquet:{}/table", "delta:{}/table", "iceberg:c.db.events"])
def open_table(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Callable[[], TableWriter]:
    """Return a function that opens the same table as another process would."""
    address = parse_address(request.param.format(tmp_path))
    catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}

    def opened() -> TableWriter:
        table = address.target.open(spark, address.location, "t", catalog=catalog)
        table.prepare(spark.range(1).schema, (), widen=False)
        return table

    return opened


def test_the_second_one_is_refused_before_its_commit(
    spark: SparkSession, open_table: Callable[[], TableWriter]
) -> None:
    mine, other = open_table(), open_table()
    assert mine.last_batch(MINE) is None
    assert other.last_batch(OTHER) is None
    add(mine, spark, MINE, 0)
    with pytest.raises(LoadUsageError, match="another checkpoint"):
        add(other, spark, OTHER, 0)
    add(mine, spark, MINE, 1)
    assert mine.last_batch(MINE) == 1
    with pytest.raises(LoadUsageError, match="another checkpoint"):
        other.last_batch(OTHER)
    assert not list(Path(mine.data_directory).rglob(f"*{OTHER[:8]}*"))


@pytest.mark.parametrize("open_table", ["delta:{}/table", "iceberg:c.db.events"], indirect=True)
def test_the_second_one_is_refused_at_its_commit(
    spark: SparkSession, open_table: Callable[[], TableWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = open_table(), open_table()
    seen: Any = [other._open()]  # type: ignore[attr-defined]
    now = other._open  # type: ignore[attr-defined]
    add(mine, spark, MINE, 0)
    # The other one has looked at the table before that commit, and commits now.
    monkeypatch.setattr(other, "_open", lambda: seen.pop() if seen else now())
    with pytest.raises(LoadUsageError, match="another checkpoint"):
        add(other, spark, OTHER, 0)
    assert not seen
    assert mine.last_batch(MINE) == 0


@pytest.mark.parametrize("open_table", ["iceberg:c.db.events"], indirect=True)
def test_a_commit_is_repeated_if_something_else_was_faster(
    spark: SparkSession, open_table: Callable[[], TableWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, somebody = open_table(), open_table()
    monkeypatch.setattr(somebody, "_topic", "u")
    seen: Any = [mine._open()]  # type: ignore[attr-defined]
    now = mine._open  # type: ignore[attr-defined]
    add(somebody, spark, OTHER, 0)
    monkeypatch.setattr(mine, "_open", lambda: seen.pop() if seen else now())
    add(mine, spark, MINE, 0)
    assert mine.last_batch(MINE) == 0
    assert now().scan().to_arrow().num_rows == 6
    assert mine.other_writers() == ["u"]
