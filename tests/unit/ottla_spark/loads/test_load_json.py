"""Schemas inferred from samples of JSON, and the reasons why values do not fit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla_spark.loads.formats.json_format import JsonFormat
from ottla_spark.loads.formats.json_inference import MAX_DEPTH, infer
from ottla_spark.loads.formats.json_mismatch import reason
from ottla_spark.loads.schema.field_types import field_types


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
        ([{}], "STRING"),
        ([{"": 1}], "STRING"),
        ([[{}]], "ARRAY<STRING>"),
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


def test_an_object_without_fields_is_text_unless_another_one_has_some() -> None:
    assert found({"a": {}, "b": {"c": {}}}) == {"a": "STRING", "b.c": "STRING"}
    assert found({"a": {}}, {"a": {"x": 1}}) == {"a.x": "BIGINT"}
    assert infer([b"{}"]).fields == []


def test_values_that_are_no_objects_are_skipped() -> None:
    assert infer([b"", b"{", b"[1]", b"7", b"\xff"]).fields == []
    assert [f.name for f in infer([b"{", b'{"a": 1}']).fields] == ["a"]


def test_of_names_that_differ_by_case_the_most_frequent_is_taken() -> None:
    several = [{"userid": 1}, {"userId": "x", "s": {"a": 1, "A": 2}}, {"userid": 2, "s": {"A": 3}}]
    assert found(*several) == {"userid": "BIGINT", "s.A": "BIGINT"}


def test_names_that_no_column_can_have_are_left_out() -> None:
    assert [f.name for f in infer([b'{"": 1, "\\ud800": 2, "a\\u0000": 3, "b": 4}']).fields] == [
        "b"
    ]


def test_deep_objects_are_text() -> None:
    value: object = 1
    for level in range(50):
        value = [value] if level % 7 == 0 else {"x": value}
    (field,) = infer([json.dumps({"d": value}).encode()]).fields
    depth, kind = 0, field.dataType
    while not isinstance(kind, StringType):
        kind = kind.elementType if isinstance(kind, ArrayType) else kind["x"].dataType  # type: ignore[index]
        depth += 1
    assert depth == MAX_DEPTH - 1


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
        StructField("n", ByteType()),
        StructField("money", DecimalType(5, 2)),
        StructField("of", MapType(StringType(), LongType())),
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
        (b'{"id": 1}{"id": 2}', "not JSON: Extra data"),
        (b'{"id": 1} and more', "not JSON: Extra data"),
        # Only the field that is wrong is named, not another one that might have been.
        (b'{"at": "2026-01-31T10:00:00Z", "who": 1}', "who: expected an object, found 1"),
        (b'{"at": "2026-1-3", "who": 1}', "who: expected an object, found 1"),
        (b'{"at": 5, "who": {}, "n": 300}', "n: expected TINYINT, found 300"),
        (b'{"id": 9223372036854775808}', "id: expected BIGINT, found 9223372036854775808"),
        (b'{"at": "2026-13-01", "id": 1}', 'at: expected TIMESTAMP, found "2026-13-01"'),
        (b'{"money": 123456.5, "id": 1}', "money: expected DECIMAL(5,2), found 123456.5"),
        (b'{"money": 999.999, "id": 1}', "money: expected DECIMAL(5,2), found 999.999"),
        (b'{"money": " 7 "}', 'money: expected DECIMAL(5,2), found " 7 "'),
        (b'{"money": "NaN"}', 'money: expected DECIMAL(5,2), found "NaN"'),
        (b'{"money": "12.34", "id": 1.0}', "id: expected BIGINT, found 1.0"),
        (b'{"money": "1,2.344", "who": 1}', "who: expected an object, found 1"),
        (b'{"money": 999.994, "who": 1}', "who: expected an object, found 1"),
        (b'{"of": {"x": 1, "y": "z"}}', 'of.y: expected BIGINT, found "z"'),
    ],
)
def test_reasons(value: bytes, words: str) -> None:
    said = reason(value, SCHEMA)
    assert words in said
    assert len(said) < 200


def test_fields_that_cannot_be_added_are_named_with_the_reason() -> None:
    schema = StructType([StructField("userid", LongType())])
    values = [b'{"userId": 1, "_offset": 2, "": 3, "new": 4}']
    names = ["userId", "_offset", "", "new"]
    learned = JsonFormat(schema).learn(names, values, {"_offset"})
    assert dict(field_types(learned.fields)) == {"new": "BIGINT"}
    assert learned.left_out == {
        "userId": "its name differs from another field only by case",
        "_offset": "the table has another column with this name",
        "": "it is no name for a column",
    }
