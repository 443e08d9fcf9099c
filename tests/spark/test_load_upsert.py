"""Upserts: the table has the last value of each key, and tombstones delete rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla_spark
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_last_values_and_tombstones(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    kind: str,
) -> None:
    name = topic(2)
    catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    to = f"delta:{tmp_path}/table" if kind == "delta" else "iceberg:c.db.users"
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "spark": spark,
        "format": "json",
        "upsert": True,
        "catalog": catalog,
    }

    def key(number: int) -> bytes | None:
        return None if number == 9 else f"u{number % 6}".encode()

    def value(number: int) -> bytes | None:
        if number % 6 == 5:
            return None
        return b"broken" if number == 12 else json.dumps({"n": number}).encode()

    produce(name, 12, key=key, value=value)
    first = ottla_spark.load(name, to, **options)
    assert (first.tally.records, first.tally.dead_letters) == (12, 1)
    assert rows_of(to, catalog) == {b"u0": 6, b"u1": 7, b"u2": 8, b"u3": 3, b"u4": 10}

    # u0 gets a value that does not fit, so its last good one stays; u1 goes; u7 comes.
    produce(name, 2, first=12, key=key, value=lambda i: b"broken" if i == 12 else None)
    produce(name, 1, first=20, key=lambda _: b"u7", value=value)
    second = ottla_spark.load(name, to, **options)
    assert second.tally.dead_letters == 1
    assert rows_of(to, catalog) == {b"u0": 6, b"u2": 8, b"u3": 3, b"u4": 10, b"u7": 20}
    reasons = [
        row.reason for row in spark.read.parquet(second.dead_letters).orderBy("offset").collect()
    ]
    assert sum("the key is null" in reason for reason in reasons) == 1
    assert sum("not JSON" in reason for reason in reasons) == 1


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_row_with_a_time_that_python_does_not_have_stays(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    kind: str,
) -> None:
    name = topic()
    catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    to = f"delta:{tmp_path}/table" if kind == "delta" else "iceberg:c.db.users"

    def value(number: int) -> bytes:
        at = "+12000-01-01T00:00:00Z" if number == 0 else "2026-11-19T00:00:00Z"
        return json.dumps({"n": number, "at": at}).encode()

    for first, n in ((0, 2), (3, 1)):  # the second load rewrites the file with both rows
        produce(name, n, first=first, key=lambda i: f"u{i % 2}".encode(), value=value)
        ottla_spark.load(
            name,
            to,
            bootstrap_servers=bootstrap_servers,
            spark=spark,
            format="json",
            schema="n BIGINT, at TIMESTAMP",
            upsert=True,
            catalog=catalog,
        )
    assert rows_of(to, catalog) == {b"u0": 0, b"u1": 3}


def test_a_column_that_another_program_added_keeps_its_values(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    from deltalake import DeltaTable, Field
    from deltalake.schema import PrimitiveType, StructType

    name = topic()

    def load(numbers: range) -> None:
        produce(
            name,
            len(numbers),
            first=numbers.start,
            key=lambda i: f"u{i % 4}".encode(),
            value=lambda i: json.dumps({"n": i, 'a "quoted" name': i, "in": {"x": i}}).encode(),
        )
        to = f"delta:{tmp_path}/table"
        servers = bootstrap_servers
        ottla_spark.load(
            name, to, bootstrap_servers=servers, spark=spark, format="json", upsert=True
        )

    load(range(3))
    DeltaTable(tmp_path / "table").alter.add_columns(Field("note", PrimitiveType("string")))
    more = StructType([Field("y", PrimitiveType("long"))])
    DeltaTable(tmp_path / "table").alter.add_columns(Field("in", more))
    DeltaTable(tmp_path / "table").update({"note": "'checked'"})
    load(range(2, 5))

    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    found = {bytes(row["_key"]): (row["n"], row['a "quoted" name'], row["note"]) for row in rows}
    assert all(row["in"] == {"x": row["n"], "y": None} for row in rows)
    assert found == {
        b"u0": (4, 4, "checked"),
        b"u1": (1, 1, "checked"),
        b"u2": (2, 2, "checked"),
        b"u3": (3, 3, None),
    }


def rows_of(to: str, catalog: dict[str, str]) -> dict[bytes, int]:
    if to.startswith("delta:"):
        from deltalake import DeltaTable

        rows = DeltaTable(to.removeprefix("delta:")).to_pyarrow_table()
    else:
        from pyiceberg.catalog import load_catalog

        rows = load_catalog("c", **catalog).load_table("db.users").scan().to_arrow()
    found = [(bytes(row["_key"]), row["n"]) for row in rows.select(["_key", "n"]).to_pylist()]
    assert len(dict(found)) == len(found)
    return dict(found)
