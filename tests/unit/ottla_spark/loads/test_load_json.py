"""Schemas inferred from samples of JSON, and the reasons why values do not fit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ottla_spark.loads.formats.json_inference import infer
from ottla_spark.loads.formats.json_mismatch import reason
from ottla_spark.loads.schema.new_fields import field_types


def found(*values: object) -> dict[str, str]:
    return dict(field_types(infer(json.dumps(value).encode() for value in values)))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1], "BIGINT"),
        ([2**70], "DECIMAL(38,0)"),
        ([10**50], "DOUBLE"),
        ([1, 1.5], "DOUBLE"),
        ([True], "BOOLEAN"),
        ([None], "STRING"),
        ([None, 3], "BIGINT"),
        ([1, "a"], "STRING"),
        ([True, 1], "STRING"),
        (["2026-01-31"], "DATE"),
        (["2026-01-31T10:00:00Z", "2026-01-31 10:00"], "TIMESTAMP"),
        (["2026-01-31", "2026-01-31T10:00:00.123+02:00"], "TIMESTAMP"),
        (["2026-01-31", "soon"], "STRING"),
        (["2026"], "STRING"),
        ([[1, 2], [2.5]], "ARRAY<DOUBLE>"),
        ([[]], "ARRAY<STRING>"),
        ([{"x": 1}, [1]], "STRING"),
    ],
)
def test_kinds(values: list[object], kind: str) -> None:
    assert found(*({"f": value} for value in values)) == {"f": kind}


def test_objects_are_merged_field_by_field() -> None:
    assert found({"a": {"b": 1}}, {"a": {"c": "x"}, "d": 1}) == {
        "a.b": "BIGINT",
        "a.c": "STRING",
        "d": "BIGINT",
    }


def test_values_that_are_no_objects_are_skipped() -> None:
    assert infer([b"", b"{", b"[1]", b"7", b"\xff"]).fields == []
    assert [f.name for f in infer([b"{", b'{"a": 1}']).fields] == ["a"]


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
INSIDE = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(), PLAIN, max_size=3)
OBJECT = st.dictionaries(st.sampled_from("abc"), INSIDE, max_size=3)


@settings(deadline=None, max_examples=50)
@given(st.lists(OBJECT, max_size=4))
def test_the_schema_does_not_depend_on_the_order(values: list[object]) -> None:
    assert found(*values) == found(*reversed(values))


SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("at", TimestampType()),
        StructField("who", StructType([StructField("name", StringType())])),
    ]
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\xff", "not UTF-8: byte 0"),
        (b"", "not JSON: Expecting value"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON: nested too deep"),
        (b"null", "expected an object: null"),
        (b'{"id": 1.5}', "id: expected BIGINT, found 1.5"),
        (b'{"id": true}', "id: expected BIGINT, found true"),
        (b'{"at": "never"}', 'at: expected TIMESTAMP, found "never"'),
        (b'{"who": []}', "who: expected an object, found []"),
        (b'{"id": "' + b"x" * 500 + b'"}', "xxx..."),
    ],
)
def test_reasons(value: bytes, words: str) -> None:
    said = reason(value, SCHEMA)
    assert words in said
    assert len(said) < 200
