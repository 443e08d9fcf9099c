"""Loads into an object store: tables, dead letters and checkpoints, against a server of moto."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla_spark.api import load
from ottla_spark.loads.state.object_store import delta_options, iceberg_properties, locate
from tests.harness.s3_server import s3_server
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla_spark.loads.run.result import LoadResult


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Yield a process of its own: delta-rs waits for the server while it holds Python's lock."""
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a bucket, and the environment that leads to it. Workers get it from the driver."""
    from pyarrow.fs import S3FileSystem

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    S3FileSystem(
        endpoint_override=server, region="us-east-1", allow_bucket_creation=True
    ).create_dir("lake")
    return "s3://lake"


def rows_of(table: str) -> list[dict[str, object]]:
    from deltalake import DeltaTable

    found = DeltaTable(table, storage_options=delta_options(table)).to_pyarrow_table().to_pylist()
    return [dict(row) for row in found]


def names_in(directory: str) -> list[str]:
    from pyarrow.fs import FileSelector

    system, path = locate(directory)
    return sorted(info.base_name for info in system.get_file_info(FileSelector(path)))


@pytest.mark.timeout(240)
def test_json_into_delta_with_dead_letters_and_a_checkpoint_in_the_bucket(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = topic()
    table = f"{bucket}/{name}"

    def run() -> LoadResult:
        return load(
            name,
            f"delta:{table}",
            bootstrap_servers=bootstrap_servers,
            spark=spark,
            format="json",
            schema="n BIGINT, kind STRING",
            partition_by="kind",
        )

    def value(number: int) -> bytes:
        kind = [None, "é=%", "a b/c"][number % 3]
        return json.dumps({"n": number, "kind": kind}).encode()

    produce(name, 6, value=value)
    produce(name, 1, value=lambda _: b"no json")
    first = run()
    assert (first.tally.rows, first.tally.dead_letters, first.lag) == (6, 1, 0)
    (letter,) = rows_of(first.dead_letters)
    assert (letter["topic"], letter["value"]) == (name, b"no json")

    left = list(tmp_path.glob("ottla-checkpoint-*"))
    assert left == [], "the copy of the checkpoint is gone, the one in the bucket counts"
    assert names_in(f"{table}/_ottla/{name}/checkpoint/commits") == ["0"]
    produce(name, 3, first=6, value=value)
    second = run()
    assert (second.tally.rows, second.lag) == (3, 0)
    rows = rows_of(table)
    assert sorted((row["n"], row["kind"]) for row in rows if row["kind"] is not None) == sorted(
        (number, ["é=%", "a b/c"][number % 3 - 1]) for number in range(9) if number % 3
    )
    assert {row["n"] for row in rows if row["kind"] is None} == {0, 3, 6}
    assert len(rows) == 9


@pytest.mark.timeout(240)
def test_raw_into_iceberg_repeats_no_batch_after_a_crash(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies after the commit to the table, before Spark knows that the batch is done."""
    from pyiceberg.catalog import load_catalog

    from ottla_spark.loads.state.checkpoint_copy import CheckpointCopy

    name = topic()
    catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"{bucket}/warehouse"}

    def run() -> LoadResult:
        return load(
            name,
            f"iceberg:here.shop.t{name.replace('-', '')}",
            bootstrap_servers=bootstrap_servers,
            spark=spark,
            catalog=catalog,
        )

    produce(name, 5)
    with monkeypatch.context() as patch:
        stored: list[int] = []
        store = CheckpointCopy.store

        def only_the_plan(copy: CheckpointCopy) -> None:
            if not stored:
                store(copy)
            stored.append(1)

        patch.setattr(CheckpointCopy, "store", only_the_plan)
        assert run().tally.rows == 5
    produce(name, 2, first=5)
    assert run().tally.rows == 2
    table = load_catalog("here", **(iceberg_properties() | catalog)).load_table(
        f"shop.t{name.replace('-', '')}"
    )
    assert sorted(table.scan().to_arrow()["offset"].to_pylist()) == list(range(7))
