"""Avro: column types of schemas, and values that fit or do not fit."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.avro import BareAvro, avro_schema_struct, read_avro_file
from ottla_spark.loads.formats.binary_format import Misfit, decode_array
from ottla_spark.loads.formats.format import REASON, UNKNOWN, VALUE
from ottla_spark.loads.schema.arrow_types import arrow_type
from ottla_spark.loads.schema.field_types import field_types

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
WHO = {"type": "record", "name": "Who", "fields": [{"name": "n", "type": "string"}]}
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "small", "type": ["null", "int"]},
    {"name": "wide", "type": ["int", "long", "null"]},
    {"name": "price", "type": PRICE},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "sizes", "type": {"type": "map", "values": "float"}},
    {"name": "who", "type": WHO},
    {"name": "other", "type": ["null", "Who"]},
]
SCHEMA = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS})
RECORD: dict[str, object] = {
    "id": 1,
    "small": None,
    "wide": 2**40,
    "price": Decimal("12.34"),
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "uid": UUID(int=5),
    "kind": "B",
    "tags": ["x"],
    "sizes": {"a": 0.5},
    "who": {"n": "me"},
    "other": {"n": "you"},
}


def encoded(record: dict[str, object] = RECORD) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(SCHEMA)), record)
    return out.getvalue()


def test_types() -> None:
    assert dict(field_types(avro_schema_struct(SCHEMA, "x"))) == {
        "id": "BIGINT",
        "small": "INT",
        "wide": "BIGINT",
        "price": "DECIMAL(9,2)",
        "day": "DATE",
        "at": "TIMESTAMP",
        "uid": "STRING",
        "kind": "STRING",
        "tags": "ARRAY<STRING>",
        "sizes": "MAP<STRING,FLOAT>",
        "who.n": "STRING",
        "other.n": "STRING",
    }


def test_values_become_arrow() -> None:
    kind = arrow_type(avro_schema_struct(SCHEMA, "x"))
    values = pa.array([encoded(), None, b"\x02"], pa.binary())
    made = decode_array(values, BareAvro(SCHEMA), kind)
    (row, null, bad) = made.to_pylist()
    assert row[VALUE] | {"sizes": dict(row[VALUE]["sizes"])} == RECORD | {"uid": str(UUID(int=5))}
    assert (row[REASON], row[UNKNOWN]) == (None, None)
    assert null == {VALUE: None, REASON: None, UNKNOWN: None}
    assert bad[VALUE] is None
    assert bad[REASON].startswith("not Avro of this schema")


def test_one_value_of_a_wrong_type_is_the_only_misfit() -> None:
    narrow = pa.struct([pa.field("id", pa.int8())])
    values = pa.array([encoded(RECORD | {"id": i}) for i in (1, 1000, 2)], pa.binary())
    rows = decode_array(values, BareAvro(SCHEMA), narrow).to_pylist()
    assert [row[VALUE] and row[VALUE]["id"] for row in rows] == [1, None, 2]
    assert "does not fit the schema" in rows[1][REASON]


def test_trailing_bytes_do_not_fit() -> None:
    with pytest.raises(Misfit, match="1 bytes are left after it"):
        BareAvro(SCHEMA).decode(encoded() + b"x")


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60))
def test_invalid_bytes_are_misfits(value: bytes) -> None:
    try:
        BareAvro(SCHEMA).decode(value)
    except Misfit:
        pass


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "must be a record"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            "itself",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["string", "int"]}]},
            "union",
        ),
    ],
)
def test_schemas_without_columns_are_refused(schema: object, words: str) -> None:
    with pytest.raises(LoadUsageError, match=words):
        avro_schema_struct(json.dumps(schema), "x")


def test_files_without_a_schema_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.avsc"
    with pytest.raises(LoadUsageError, match="cannot read"):
        read_avro_file(path)
    path.write_text('{"type": "nothing"}')
    with pytest.raises(LoadUsageError, match="is not an Avro schema"):
        read_avro_file(path)
