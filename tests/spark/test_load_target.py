"""A load and a pipeline into a target that the tests add with one file and one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla_spark
from ottla_spark.loads.targets.registry import TARGETS
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
bootstrap_servers: {servers}
sources:
  numbers: {{topic: {topic}, format: json, schema: n long}}
sinks:
  copy: {{from: numbers, table: "lines:copy"}}
"""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "lines", "tests.support.lines_target")


@pytest.mark.usefixtures("lines")
def test_a_load_and_a_pipeline_into_a_new_target(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name, table = topic(2), tmp_path / "table"
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "spark": spark,
        "format": "json",
    }
    produce(name, 10, value=lambda number: b'{"n": %d}' % number)
    first = ottla_spark.load(name, f"lines:{table}", **options)
    produce(name, 5, first=10, value=lambda number: b'{"n": %d}' % number)
    second = ottla_spark.load(name, f"lines:{table}", **options)
    assert (first.tally.rows, second.tally.rows) == (10, 5)
    file = tmp_path / "copy.yaml"
    file.write_text(PIPELINE.format(servers=bootstrap_servers, topic=name))
    ottla_spark.pipeline(file, spark).run(once=True)
    for path in (table, tmp_path / "copy"):
        rows = spark.read.json(str(path)).collect()
        assert sorted(row.n for row in rows) == list(range(15))
