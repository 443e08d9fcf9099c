"""The way of a load in docs/architecture.md is the way that a load takes on the driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla_spark
from ottla_spark.loads.run.batch_loader import BatchLoader
from tests.harness.entered_files import EnteredFiles, assert_way

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_way_of_a_load(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: Any,
    produce: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered = EnteredFiles()
    load_batch = BatchLoader.__call__

    def watched(loader: BatchLoader, frame: DataFrame, batch_id: int) -> None:
        """Load a batch on the thread on which Spark calls back."""
        with entered.in_this_thread():
            load_batch(loader, frame, batch_id)

    monkeypatch.setattr(BatchLoader, "__call__", watched)
    name = topic()
    produce(name, 20, value=lambda number: b'{"id": %d}' % number)
    to = f"parquet:{tmp_path}/table"
    with entered.in_this_thread():
        result = ottla_spark.load(
            name, to, format="json", bootstrap_servers=bootstrap_servers, spark=spark
        )
    assert result.tally.records == 20
    assert_way("a load", entered.files)
