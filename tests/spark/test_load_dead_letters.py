"""Dead letters in Parquet tables: of batches with gaps between them, and of several loads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ottla_spark
from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.format import REASON
from ottla_spark.loads.run.dead_letters import COLUMNS, DeadLetterTable
from ottla_spark.loads.run.result import LoadResult
from ottla_spark.loads.targets.table_writer import Batch
from tests.support.spark_fixtures import MakeTopic, Produce


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


def test_two_topics_of_one_table_have_dead_letters_of_their_own(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    names = [topic(), topic()]

    def load(name: str, to: str, dead_letters: str | None = None) -> LoadResult:
        return ottla_spark.load(
            name,
            f"delta:{tmp_path}/{to}",
            bootstrap_servers=bootstrap_servers,
            spark=spark,
            format="json",
            dead_letters=dead_letters,
        )

    for _ in range(2):
        for name in names:
            produce(name, 2, value=lambda i: b"bad" if i else b'{"id": 1}')
        first, second = (load(name, "table") for name in names)
        assert (first.tally.dead_letters, second.tally.dead_letters) == (1, 1)
        assert first.dead_letters == f"{tmp_path}/table-dead-letters"
        assert second.dead_letters == f"{tmp_path}/table-dead-letters-{names[1]}"
    for result in (first, second):
        assert spark.read.parquet(result.dead_letters).count() == 2
    with pytest.raises(LoadUsageError, match="has the dead letters of another load"):
        load(names[1], "other", f"parquet:{first.dead_letters}")
    assert spark.read.parquet(first.dead_letters).count() == 2
