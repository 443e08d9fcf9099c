"""Decoded values, and records that do not fit and go to the dead letters."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

import ottla_spark
from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.run.listener import Listener
from tests.harness.schema_registry import registry
from tests.support.spark_fixtures import MakeTopic, Produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAD = {3: b"{half", 5: None, 6: b"[1]", 7: b'{"id": 7, "at": "\xff"}'}
CLOSE_THE_LIST = (
    b'{"userid": 1, "word": "x"}], "x": [{"userid": 2}',
    b'{"userid": 1, "word": "x"}], \'x\': [{"userid": 2}',
    b'{"userid": 1, "word": "x"}], "_ottla_end": true} and more',
    b'], "v": [{"userid": 1, "word": "x"}',
)
"""Values that would fit if they were only looked at inside a list."""
WRONG_TYPE = 44  # after the sample, in which it would have made `id` a STRING
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
WIDER = ORDER | {
    "fields": [*ORDER["fields"], {"name": "price", "type": ["null", "double"], "default": None}]
}
PROTO = """
syntax = "proto3";
package shop;
message Order { int64 id = 1; string note = 2; repeated int32 sizes = 3; }
message Other { string x = 1; }
"""


class Hears(Listener):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


def json_value(number: int) -> bytes | None:
    if number == WRONG_TYPE:
        return b'{"id": "four"}'
    if number % 20 in BAD:
        return BAD[number % 20]
    value: dict[str, object] = {"id": number, "at": f"2026-01-0{1 + number % 2}T00:00:00Z"}
    if number >= 40:
        value |= {"extra": number, "who": {"name": "x", "age": 3}}
    else:
        value |= {"who": {"name": "é"}}
    return json.dumps(value).encode()


def test_json_with_dead_letters_drift_and_evolution(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    name = topic(1)
    produce(name, 40, value=json_value)
    hears = Hears()
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "spark": spark,
        "listener": hears,
        "format": "json",
        "coordinates": True,
        "partition_by": "day(at)",
    }
    to = f"delta:{tmp_path}/table"
    first = ottla_spark.load(name, to, **options)
    assert (first.tally.rows, first.tally.dead_letters, first.exit_code) == (32, 8, 3)
    assert "  at TIMESTAMP" in hears.said
    assert "  who.name STRING" in hears.said
    pinned = tmp_path / "table" / "_ottla" / name / "schema.json"
    assert [field["name"] for field in json.loads(pinned.read_text())["fields"]] == [
        "id", "at", "who",
    ]  # fmt: skip

    produce(name, 5, first=40, value=json_value, key=lambda _: None)
    second = ottla_spark.load(name, to, **options)
    assert second.tally.new_fields == {"extra": "BIGINT", "who.age": "BIGINT"}
    assert "new field extra BIGINT: not loaded (--evolve adds it)" in hears.said
    produce(name, 5, first=49, value=json_value)
    third = ottla_spark.load(name, to, evolve=True, **options)
    assert third.tally.added_fields == {"extra": "BIGINT", "who.age": "BIGINT"}

    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().sort_by("_offset").to_pylist()
    bad = [i for i in range(45) if i % 20 in BAD or i == WRONG_TYPE]
    fits = [i for i in [*range(45), *range(49, 54)] if i not in bad]
    assert [row["id"] for row in rows] == fits
    assert [row["extra"] for row in rows if row["id"] >= 49] == list(range(49, 54))
    assert {row["who"]["age"] for row in rows if row["id"] < 49} == {None}
    assert {row["who"]["age"] for row in rows if row["id"] >= 49} == {3}
    dead = spark.read.parquet(f"{tmp_path}/table-dead-letters").orderBy("offset").collect()
    assert [row.offset for row in dead] == bad
    assert [row.value and bytes(row.value) for row in dead[:4]] == list(BAD.values())
    reasons = [row.reason for row in dead]
    assert reasons[0].startswith("not JSON: ")
    assert reasons[1].startswith("the value is null")
    assert reasons[2] == "expected an object: [1]"
    assert reasons[3].startswith("not UTF-8")
    assert reasons[-1] == 'id: expected BIGINT, found "four"'
    assert {(row.topic, row.partition) for row in dead} == {(name, 0)}


def test_one_odd_record_does_not_stop_a_json_load(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    name = topic(1)
    deep = b'{"x":' * 50 + b"1" + b"}" * 50
    values = [
        b'{"userid": 1, "word": "a", "meta": {}}',
        b'{"userId": 2, "word": "b", "_offset": 7, "": 8}',
        b'{"userid": 3, "word": "c", "deep": ' + deep + b"}",
        b'{"userid": 4, "word": "d"}{"userid": 5, "word": "e"}',
        b'{"userid": 6, "word": "f"} and more',
        b'{"userid": 7, "word": ""}',
        b'{"userid": 8, "word": null} ',
        b'{"userid": 9, "word": "g"}]',
        *CLOSE_THE_LIST,
        b'{"userid": 10, "word": "h", "list": [{"a": 1}], "s": ["]"], "n": NaN}',
    ]
    produce(name, len(values), value=lambda i: values[i])
    hears = Hears()
    result = ottla_spark.load(
        name,
        f"delta:{tmp_path}/table",
        bootstrap_servers=bootstrap_servers,
        spark=spark,
        listener=hears,
        format="json",
        coordinates=True,
        partition_by="word",
    )
    assert (result.tally.rows, result.tally.dead_letters) == (5, 8)
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().sort_by("_offset").to_pylist()
    found = [(row["_offset"], row["userid"], row["word"]) for row in rows]
    assert found == [(0, 1, "a"), (1, None, "b"), (2, 3, "c"), (6, 8, None), (12, 10, "h")]
    for why in (
        "userId: not loaded, because its name differs from another field only by case",
        "_offset: not loaded, because the table has another column with this name",
    ):
        assert f"new field {why}" in hears.said
    dead = spark.read.parquet(f"{tmp_path}/table-dead-letters").orderBy("offset").collect()
    assert [row.offset for row in dead] == [3, 4, 5, 7, 8, 9, 10, 11]
    assert all(dead[i].reason.startswith("not JSON: ") for i in (0, 1, 3, 4, 5, 6, 7))
    assert all("Extra data" in dead[i].reason for i in (0, 1, 3, 4, 5, 6))
    assert dead[2].reason == "word: a partition value cannot be an empty string"


TOO_LONG = "x" * 250
LAST, LATER = "9999-12-31T23:59:59.999Z", "+12000-01-01T00:00:00Z"


@pytest.mark.parametrize("target", ["parquet", "delta", "iceberg"])
def test_values_that_no_directory_and_no_calendar_has(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    target: str,
) -> None:
    name = topic(1)
    values: list[dict[str, object]] = [
        {
            "n": 0,
            "word": "a/../b=%2F\n:*?é",
            "at": LAST,
            "till": LATER,
            "in": {"till": "-0500-01-01"},
        },
        {"n": 1, "word": ".."},
        {"n": 2, "word": TOO_LONG},
        {"n": 3, "word": "/" * 90},  # each one takes three bytes in the name of a directory
        {"n": 4, "word": "a\0b"},
        {"n": 5, "at": LATER},
        {"n": 6, "till": LAST},
    ]
    produce(name, len(values), value=lambda i: json.dumps(values[i]).encode())
    catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    to = "iceberg:c.db.words" if target == "iceberg" else f"{target}:{tmp_path}/table"
    result = ottla_spark.load(
        name,
        to,
        bootstrap_servers=bootstrap_servers,
        spark=spark,
        format="json",
        schema="n BIGINT, word STRING, at TIMESTAMP, till TIMESTAMP, `in` STRUCT<till: DATE>",
        catalog=catalog,
        partition_by=["word", "day(at)"],
        dead_letters=f"parquet:{tmp_path}/dead",
    )
    assert (result.tally.rows, result.tally.dead_letters) == (3, 4)
    dead = spark.read.parquet(f"{tmp_path}/dead").orderBy("offset").collect()
    assert [
        (row.offset, row.reason.partition(" a partition value cannot be ")[2]) for row in dead
    ] == [
        (2, "longer than 234 bytes in the name of a directory"),
        (3, "longer than 234 bytes in the name of a directory"),
        (4, "a text with a null character"),
        (5, "a time outside the years 1 to 9999"),
    ]
    words = {row["n"]: row["word"] for row in _rows_of(to, catalog)}
    assert words == {0: values[0]["word"], 1: "..", 6: None}


def _rows_of(to: str, catalog: dict[str, str]) -> list[dict[str, Any]]:
    """Return the columns n and word as others read the table."""
    import pyarrow.dataset as ds
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    scheme, _, place = to.partition(":")
    if scheme == "delta":
        return list(DeltaTable(place).to_pyarrow_table(columns=["n", "word"]).to_pylist())
    if scheme == "iceberg":
        table = load_catalog("c", **catalog).load_table(place.removeprefix("c."))
        return list(table.scan(selected_fields=("n", "word")).to_arrow().to_pylist())
    found = ds.dataset(place, partitioning="hive", exclude_invalid_files=True)
    return list(found.to_table(columns=["n", "word"]).to_pylist())


@pytest.mark.parametrize("partition_by", ["", "day(timestamp)"])
def test_raw_records_with_times_that_python_does_not_have(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    partition_by: str,
) -> None:
    from pyiceberg.catalog import load_catalog

    name = topic(1, configs={"message.timestamp.after.max.ms": str(2**62)})
    times = [1_800_000_000_000, 1_800_000_000_000_000]  # a producer that counts in microseconds
    produce(name, 2, timestamp_ms=lambda i: times[i])
    catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    result = ottla_spark.load(
        name,
        "iceberg:c.db.raw",
        bootstrap_servers=bootstrap_servers,
        spark=spark,
        catalog=catalog,
        partition_by=partition_by,
        dead_letters=f"parquet:{tmp_path}/dead",
    )
    unfit = 1 if partition_by else 0
    assert (result.tally.rows, result.tally.dead_letters) == (2 - unfit, unfit)
    table = load_catalog("c", **catalog).load_table("db.raw")
    assert table.scan(selected_fields=("value",)).to_arrow().num_rows == 2 - unfit
    if unfit:
        dead_letters = spark.read.parquet(f"{tmp_path}/dead").select("offset", "value", "reason")
        (dead,) = dead_letters.collect()
        assert (dead.offset, bytes(dead.value)) == (1, b"v1")
        assert "outside the years 1 to 9999" in dead.reason


def test_iceberg_tells_an_empty_partition_value_from_null(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    from pyiceberg.catalog import load_catalog

    name = topic(1)
    values = [b'{"n": 1, "word": ""}', b'{"n": 2, "word": null}', b'{"n": 3, "word": "a"}']
    produce(name, 3, value=lambda i: values[i])
    catalog = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    result = ottla_spark.load(
        name,
        "iceberg:c.db.words",
        bootstrap_servers=bootstrap_servers,
        spark=spark,
        format="json",
        catalog=catalog,
        partition_by="word",
    )
    assert (result.tally.rows, result.tally.dead_letters) == (3, 0)
    table = load_catalog("c", **catalog).load_table("db.words")
    for filter_, n in (("word is null", 2), ("word = ''", 1), ("word = 'a'", 3)):
        assert table.scan(row_filter=filter_).to_arrow()["n"].to_pylist() == [n]


def test_json_with_a_schema_and_dead_letters_to_a_topic(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name, dead = topic(1), topic(1)
    produce(name, 10, value=lambda i: b'{"id": "x"}' if i == 9 else json_value(i))
    result = ottla_spark.load(
        name,
        f"parquet:{tmp_path}/table",
        bootstrap_servers=bootstrap_servers,
        spark=spark,
        format="json",
        schema="id BIGINT, at STRING",
        dead_letters=f"topic:{dead}",
    )
    assert (result.tally.rows, result.tally.dead_letters) == (5, 5)
    rows = spark.read.parquet(f"{tmp_path}/table")
    assert dict(rows.dtypes) == {"id": "bigint", "at": "string"}
    letters = ottla_spark.read(spark, dead, bootstrap_servers, includeHeaders="true").collect()
    headers = [{h.key: bytes(h.value).decode() for h in row.headers} for row in letters]
    assert sorted(int(told["ottla.offset"]) for told in headers) == [3, 5, 6, 7, 9]
    assert {told["ottla.topic"] for told in headers} == {name}
    assert {bytes(row.key) for row in letters} == {f"k{i}".encode() for i in (3, 5, 6, 7, 9)}


def avro(value: dict[str, object], schema: dict[str, Any] = ORDER) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def test_avro_of_a_registry_that_learns_a_schema(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(1)
    schemas = {7: {"schema": json.dumps(ORDER)}, 8: {"schema": json.dumps(WIDER)}}
    values = [framed(7, avro({"id": i, "note": f"n{i}"})) for i in range(5)]
    values += [b"\x01nothing", framed(99, b"x"), framed(7, b"\x02")]
    with registry(schemas, login="dTpw") as url:
        options: dict[str, Any] = {
            "bootstrap_servers": bootstrap_servers,
            "spark": spark,
            "format": "avro",
            "registry": url,
            "registry_login": "u:p",
        }
        produce(name, len(values), value=lambda i: values[i])
        first = ottla_spark.load(name, f"parquet:{tmp_path}/table", **options)
        assert (first.tally.rows, first.tally.dead_letters) == (5, 3)
        wide = framed(8, avro({"id": 5, "note": None, "price": 1.5}, WIDER))
        produce(name, 1, value=lambda _: wide)
        second = ottla_spark.load(name, f"parquet:{tmp_path}/table", evolve=True, **options)
        assert second.tally.added_fields == {"price": "DOUBLE"}
    rows = spark.read.option("mergeSchema", "true").parquet(f"{tmp_path}/table")
    found = sorted((row.id, row.note, row.price) for row in rows.collect())
    assert found == [*((i, f"n{i}", None) for i in range(5)), (5, None, 1.5)]
    dead = spark.read.parquet(f"{tmp_path}/table-dead-letters").orderBy("offset").collect()
    assert "not written with a schema registry" in dead[0].reason
    assert "schema 99 is not in the registry" in dead[1].reason
    assert "not Avro of this schema" in dead[2].reason


def test_protobuf_of_a_file(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(1)
    schema = tmp_path / "order.proto"
    schema.write_text(PROTO)
    # id = number; note = "n"; sizes = [1, 2]; and once a field number 9 that the schema lacks
    values = [bytes([8, i, 18, 1, 110, 26, 2, 1, 2]) for i in range(1, 5)]
    values[3] += bytes([72, 5])
    values.append(b"\xff\xff")
    produce(name, 5, value=lambda i: values[i])
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "spark": spark,
        "format": "protobuf",
    }
    with pytest.raises(LoadUsageError, match=r"several messages \(Order, Other\)"):
        ottla_spark.load(name, f"parquet:{tmp_path}/t", schema=str(schema), **options)
    result = ottla_spark.load(
        name, f"parquet:{tmp_path}/t", schema=str(schema), message="Order", **options
    )
    assert (result.tally.rows, result.tally.dead_letters) == (4, 1)
    assert result.tally.new_fields == {"field number 9": ""}
    rows = spark.read.parquet(f"{tmp_path}/t").orderBy("id").collect()
    assert [(row.id, row.note, row.sizes) for row in rows] == [
        (i, "n", [1, 2]) for i in range(1, 5)
    ]


def test_protobuf_of_a_registry_that_learns_a_schema(
    spark: SparkSession, bootstrap_servers: str, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(1)
    wider = PROTO.replace("sizes = 3;", "sizes = 3; double price = 4;")
    schemas = {
        3: {"schema": PROTO, "schemaType": "PROTOBUF"},
        4: {"schema": wider, "schemaType": "PROTOBUF"},
    }
    order = bytes([18, 1, 110, 26, 2, 1, 2])  # note = "n"; sizes = [1, 2]
    values = [framed(3, b"\0" + bytes([8, i]) + order) for i in range(1, 5)]
    values += [b"plain", framed(99, b"\0" + order), framed(3, b"\0\xff\xff"), framed(3, b"\2\2")]
    to = f"delta:{tmp_path}/table"
    with registry(schemas) as url:
        options: dict[str, Any] = {
            "bootstrap_servers": bootstrap_servers,
            "spark": spark,
            "format": "protobuf",
            "registry": url,
            "message": "Order",
            "coordinates": True,
        }
        produce(name, len(values), value=lambda i: values[i])
        first = ottla_spark.load(name, to, **options)
        assert (first.tally.rows, first.tally.dead_letters) == (4, 4)
        priced = framed(4, b"\0" + bytes([8, 9]) + order + bytes.fromhex("21000000000000f83f"))
        produce(name, 1, value=lambda _: priced)
        second = ottla_spark.load(name, to, evolve=True, **options)
        assert second.tally.added_fields == {"price": "DOUBLE"}
    from deltalake import DeltaTable

    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().sort_by("_offset").to_pylist()
    found = [(row["id"], row["note"], row["sizes"], row["price"]) for row in rows]
    assert found == [*((i, "n", [1, 2], None) for i in range(1, 5)), (9, "n", [1, 2], 1.5)]
    dead = spark.read.parquet(f"{tmp_path}/table-dead-letters").orderBy("offset").collect()
    reasons = [row.reason for row in dead]
    assert "not written with a schema registry" in reasons[0]
    assert "schema 99 is not in the registry" in reasons[1]
    assert "not a shop.Order" in reasons[2]
    assert reasons[3] == "the message is a shop.Other, not a Order"
