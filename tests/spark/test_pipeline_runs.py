"""Pipelines from files to tables: one run, several, a schedule, a failure."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

import ottla_spark
from ottla_spark.pipelines.api import Pipeline
from ottla_spark.pipelines.run.failures import QueryFailed
from ottla_spark.pipelines.run.pipeline_run import View
from ottla_spark.pipelines.run.progress import QueryProgress
from ottla_spark.pipelines.run.state_lock import state_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = """\
    name: numbers
    sources:
      numbers: {files: in, format: json, schema: "n long", stream: true}
    steps:
      even: {sql: SELECT n FROM numbers WHERE n % 2 = 0}
      squares: {python: "fns.py:squares", from: even, with: {power: 2}}
    sinks:
      squares: {from: squares, table: "parquet:out"}
    """
FUNCTIONS = """\
    from pyspark.sql.functions import col, udf

    def squares(rows, power):
        @udf("long")
        def raised(n):
            if n == 666:
                raise ValueError("666 has no square here")
            return n ** power
        return rows.select("n", raised("n").alias("square"))
    """


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a file of the test's directory and makes its parents."""

    def put(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
        return file

    return put


@pytest.fixture
def numbers(spark: SparkSession, write: Callable[[str, str], Path]) -> Pipeline:
    write("in/0.json", '{"n": 0}\n{"n": 1}\n{"n": 2}\n')
    write("fns.py", FUNCTIONS)
    return ottla_spark.pipeline(write("numbers.yaml", NUMBERS), spark)


def table(spark: SparkSession, path: Path) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(path)).collect())


def test_each_run_continues_the_last_one(
    spark: SparkSession, numbers: Pipeline, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    (first,) = numbers.run(once=True)
    assert (first.sink, first.rows, first.batches) == ("squares", 3, 1)
    assert table(spark, tmp_path / "out") == [(0, 0), (2, 4)]
    write("in/1.json", '{"n": 4}\n{"n": 5}\n')
    (second,) = numbers.run(once=True)
    assert second.rows == 2
    assert table(spark, tmp_path / "out") == [(0, 0), (2, 4), (4, 16)]
    assert (tmp_path / "state" / "numbers" / "squares" / "commits").is_dir()


def test_a_run_starts_after_a_kill_during_the_first_plan(
    spark: SparkSession, numbers: Pipeline, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    numbers.run(once=True)
    for log in ("offsets", "commits"):
        shutil.rmtree(tmp_path / "state" / "numbers" / "squares" / log)
    shutil.rmtree(tmp_path / "out")
    write("state/numbers/squares/offsets/.0.5ad0a3de.tmp", "v1")
    (again,) = numbers.run(once=True)
    assert again.rows == 3
    assert table(spark, tmp_path / "out") == [(0, 0), (2, 4)]


def test_a_failed_query_ends_the_run_with_its_message(
    spark: SparkSession, numbers: Pipeline, write: Callable[[str, str], Path]
) -> None:
    write("in/1.json", '{"n": 666}\n')
    with pytest.raises(QueryFailed) as failed:
        numbers.run(once=True)
    assert str(failed.value) == "sinks.squares: ValueError: 666 has no square here"
    assert spark.streams.active == []


def test_a_schedule_runs_again_until_it_is_stopped(
    spark: SparkSession, numbers: Pipeline, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    stop = threading.Event()

    class Feeds(View):
        """Gives each run something to find, and ends the schedule after the third."""

        runs = 0

        def batch(self, query: QueryProgress) -> None:
            self.runs += 1
            write(f"in/{self.runs}.json", f'{{"n": {self.runs * 10}}}\n')
            if self.runs == 3:
                stop.set()

    (query,) = numbers.run(every="1ms", view=Feeds(), stop=stop)
    assert (query.rows, query.batches) == (5, 3)
    assert table(spark, tmp_path / "out") == [(0, 0), (2, 4), (10, 100), (20, 400)]


def test_dataframes_for_python_programs(spark: SparkSession, numbers: Pipeline) -> None:
    rows = numbers.frame("even")
    assert rows.isStreaming
    query = rows.writeStream.format("memory").queryName("even_rows").trigger(availableNow=True)
    query.start().awaitTermination(60)
    found = rows.sparkSession.table("even_rows").collect()
    assert sorted(row.n for row in found) == [0, 2]
    with pytest.raises(KeyError, match="odd"):
        numbers.frame("odd")


def test_two_runs_cannot_share_a_state_directory(numbers: Pipeline) -> None:
    with state_lock(numbers.spec), pytest.raises(QueryFailed, match="already running"):
        numbers.run(once=True)
