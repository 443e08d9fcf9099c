"""Infers the schema of JSON values from a sample.

Integers are BIGINT (DECIMAL(38,0) if larger), other numbers DOUBLE. Text is TIMESTAMP or DATE if
all values are written in ISO 8601, else STRING. Objects are STRUCT, lists ARRAY. If types differ,
the wider one is used: BIGINT and DOUBLE give DOUBLE, DATE and TIMESTAMP give TIMESTAMP, anything
else gives STRING, which holds any JSON as text. A field that is always null is STRING, and so is an
object that never has a field: no file can have a struct without fields.

One record of the sample must not keep a table from being created. Objects and lists below
MAX_DEPTH are STRING, because Delta cannot describe much deeper types. Names that no column can
have are left out. Of names that differ only by case, tables take one: the most frequent.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}([.]\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?"
)
MAX_DEPTH = 20
_LONG = 2**63
_DECIMAL = 10**38
_NUMBERS = ("bigint", "decimal(38,0)", "double")
_TIMES = ("date", "timestamp")


@dataclass(frozen=True)
class Items:
    """A list with elements of this shape."""

    element: Shape


Shape: TypeAlias = "str | Items | dict[str, Shape] | None"
"""A simple type by its name, a list, an object, or None for null."""
Path: TypeAlias = tuple[str, ...]
"""The names on the way to a value; the elements of a list have the empty name."""


def infer(values: Iterable[bytes]) -> StructType:
    """Return the schema of all values that are JSON objects; without fields if none is."""
    from pyspark.sql.types import StructType

    merged: Shape = {}
    counts: Counter[Path] = Counter()
    for value in values:
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            merged = _merge(merged, _shape(parsed, (), counts))
    found = _type(merged, (), counts)
    assert isinstance(found, StructType)
    return found


def is_usable(name: str) -> bool:
    """Return whether a column can have this name."""
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return bool(name) and "\0" not in name


def _shape(value: object, path: Path, counts: Counter[Path]) -> Shape:
    """Return the shape of a value, and count the names in it."""
    if isinstance(value, dict | list) and len(path) >= MAX_DEPTH:
        return "string"
    if isinstance(value, dict):
        named = {name: inside for name, inside in value.items() if is_usable(name)}
        counts.update((*path, name) for name in named)
        return {name: _shape(inside, (*path, name), counts) for name, inside in named.items()}
    if isinstance(value, list):
        merged: Shape = None
        for element in value:
            merged = _merge(merged, _shape(element, (*path, ""), counts))
        return Items(merged)
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return _whole_number(value)
    if isinstance(value, float):
        return "double"
    return _text(value) if isinstance(value, str) else None


def _whole_number(value: int) -> Shape:
    if -_LONG <= value < _LONG:
        return "bigint"
    return "decimal(38,0)" if abs(value) < _DECIMAL else "double"


def _text(value: str) -> Shape:
    if _DATE.fullmatch(value):
        return "date"
    return "timestamp" if _TIMESTAMP.fullmatch(value) else "string"


def _merge(one: Shape, other: Shape) -> Shape:
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        names = one | other
        return {name: _merge(one.get(name), other.get(name)) for name in names}
    if isinstance(one, Items) and isinstance(other, Items):
        return Items(_merge(one.element, other.element))
    for ladder in (_NUMBERS, _TIMES):
        if one in ladder and other in ladder:
            return max(one, other, key=lambda name: ladder.index(str(name)))
    return "string"


def _type(shape: Shape, path: Path, counts: Counter[Path]) -> DataType:
    from pyspark.sql import types as T

    if isinstance(shape, dict):
        fields = [
            T.StructField(name, _type(shape[name], (*path, name), counts))
            for name in _distinct(list(shape), path, counts)
        ]
        return T.StructType(fields) if fields or not path else T.StringType()
    if isinstance(shape, Items):
        return T.ArrayType(_type(shape.element, (*path, ""), counts))
    simple: dict[str | None, DataType] = {
        "boolean": T.BooleanType(),
        "bigint": T.LongType(),
        "decimal(38,0)": T.DecimalType(38, 0),
        "double": T.DoubleType(),
        "date": T.DateType(),
        "timestamp": T.TimestampType(),
    }
    return simple.get(shape, T.StringType())


def _distinct(names: list[str], path: Path, counts: Counter[Path]) -> list[str]:
    """Return the names without those that differ from a more frequent one only by case."""
    best: dict[str, str] = {}
    for name in sorted(names, key=lambda each: (-counts[*path, each], each)):
        best.setdefault(name.lower(), name)
    return [name for name in names if best[name.lower()] == name]
