"""Pipelines that write and read Delta and Iceberg tables, each row exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

import ottla_spark
from ottla_spark.pipelines.run.failures import QueryFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = """\
    name: {name}
    catalogs:
      here: {{uri: "sqlite:///{place}/catalog.db", warehouse: "file://{place}/warehouse"}}
    sources:
      numbers: {{files: in, format: json, schema: "n long, word string", stream: true}}
    """

Run = Callable[[str, str], None]


@pytest.fixture
def feed(tmp_path: Path) -> Callable[[str, list[int]], None]:
    """Return a function that puts a file of numbers where the pipelines look."""
    (tmp_path / "in").mkdir()

    def put(name: str, numbers: list[int]) -> None:
        lines = [f'{{"n": {n}, "word": "{"odd" if n % 2 else "even"}"}}\n' for n in numbers]
        (tmp_path / "in" / f"{name}.json").write_text("".join(lines))

    return put


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Return a function that runs a pipeline with these steps and sinks once."""

    def once(name: str, rest: str) -> None:
        text = dedent(SOURCE.format(name=name, place=tmp_path)) + dedent(rest)
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        ottla_spark.pipeline(file, spark).run(once=True)

    return once


def batch_again(tmp_path: Path, name: str, sink: str) -> None:
    """Make Spark forget that the last batch was finished, as a crash before its end does."""
    commits = tmp_path / "state" / name / sink / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_delta_has_each_row_once_and_can_be_read(
    spark: SparkSession, run: Run, feed: Callable[[str, list[int]], None], tmp_path: Path
) -> None:
    sink = 'sinks:\n  out: {from: numbers, table: "delta:lake", partition_by: word}\n'
    feed("a", list(range(5)))
    run("writes", sink)
    batch_again(tmp_path, "writes", "out")
    feed("b", list(range(5, 8)))
    run("writes", sink)
    run(
        "reads",
        """\
          lake: {table: "delta:lake"}
        steps:
          both:
            sql: |
              SELECT numbers.n, lake.word, lake.n - numbers.n AS zero
              FROM numbers JOIN lake ON lake.n = numbers.n
        sinks:
          out: {from: both, table: "parquet:joined"}
        """,
    )
    rows = sorted(spark.read.parquet(str(tmp_path / "joined")).collect())
    assert [(row.n, row.word, row.zero) for row in rows] == [
        (n, "odd" if n % 2 else "even", 0) for n in range(8)
    ]


def test_a_column_may_become_nullable_in_a_later_query(
    run: Run, feed: Callable[[str, list[int]], None], tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    rest = """\
        steps:
          marked: {{sql: "SELECT n, {mark} AS mark FROM numbers"}}
        sinks:
          out: {{from: marked, table: "delta:marked"}}
        """
    feed("a", [1])
    run("marks", rest.format(mark="'first'"))
    feed("b", [2])
    run("marks", rest.format(mark="CAST(NULL AS STRING)"))
    table = DeltaTable(str(tmp_path / "marked"))
    assert all(field.nullable for field in table.schema().fields)
    rows = table.to_pyarrow_table().to_pylist()
    assert sorted((row["n"], row["mark"]) for row in rows) == [(1, "first"), (2, None)]


def test_delta_takes_updates_of_sums_by_key(
    run: Run, feed: Callable[[str, list[int]], None], tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    rest = """\
        steps:
          sums:
            sql: SELECT word, sum(n) AS total FROM numbers GROUP BY word
            unbounded: true
        sinks:
          out: {from: sums, table: "delta:sums", upsert: word}
        """
    feed("a", [1, 2, 3])
    run("sums", rest)
    feed("b", [5, 7])
    run("sums", rest)
    table = DeltaTable(str(tmp_path / "sums")).to_pyarrow_table().to_pylist()
    assert sorted((row["word"], row["total"]) for row in table) == [("even", 2), ("odd", 16)]


def test_iceberg_has_each_row_once_and_can_be_read(
    spark: SparkSession, run: Run, feed: Callable[[str, list[int]], None], tmp_path: Path
) -> None:
    sink = 'sinks:\n  out: {from: numbers, table: "iceberg:here.db.numbers"}\n'
    feed("a", list(range(5)))
    run("writes", sink)
    batch_again(tmp_path, "writes", "out")
    run("writes", sink)
    run(
        "reads",
        """\
          lake: {table: "iceberg:here.db.numbers"}
        steps:
          both: {sql: SELECT numbers.n FROM numbers JOIN lake ON lake.n = numbers.n}
        sinks:
          out: {from: both, table: "parquet:joined"}
        """,
    )
    rows = spark.read.parquet(str(tmp_path / "joined")).collect()
    assert sorted(row.n for row in rows) == list(range(5))


def test_a_table_with_other_columns_is_refused_before_anything_runs(
    run: Run, feed: Callable[[str, list[int]], None]
) -> None:
    feed("a", [1])
    run("first", 'sinks:\n  out: {from: numbers, table: "delta:lake"}\n')
    rest = """\
        steps:
          other: {sql: SELECT CAST(n AS string) AS n FROM numbers}
        sinks:
          out: {from: other, table: "delta:lake"}
        """
    with pytest.raises(QueryFailed, match=r"sinks\.out: .*has different columns"):
        run("second", rest)
