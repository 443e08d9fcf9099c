"""Explains why a JSON value does not fit a schema. Used only for values that do not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

SHOWN = 60


def reason(value: bytes, schema: DataType) -> str:
    """Return the first thing that is wrong with a value."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start}"
    try:
        parsed = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    except RecursionError:
        return "not JSON: nested too deep"
    return _misfit(parsed, schema, "") or "does not fit the schema"


def _misfit(value: object, kind: DataType, path: str) -> str:
    from pyspark.sql import types as T

    if value is None and path:
        return ""
    if isinstance(kind, T.StructType):
        if not isinstance(value, dict):
            return _expected(path, "an object", value)
        inside = [
            _misfit(value[field.name], field.dataType, f"{path}.{field.name}".lstrip("."))
            for field in kind.fields
            if field.name in value
        ]
        return next((found for found in inside if found), "")
    if isinstance(kind, T.ArrayType):
        if not isinstance(value, list):
            return _expected(path, "a list", value)
        places = (_misfit(v, kind.elementType, f"{path}[{i}]") for i, v in enumerate(value))
        return next((found for found in places if found), "")
    return "" if _fits(value, kind) else _expected(path, kind.simpleString().upper(), value)


def _fits(value: object, kind: DataType) -> bool:
    from pyspark.sql import types as T

    if isinstance(kind, T.BooleanType):
        return isinstance(value, bool)
    if isinstance(kind, T.IntegralType):
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(kind, T.NumericType):
        return isinstance(value, int | float) and not isinstance(value, bool)
    # Spark found something wrong, and text for a date is the most likely cause.
    return not isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType)


def _expected(path: str, wanted: str, value: object) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."
    return f"{path}: expected {wanted}, found {shown}" if path else f"expected {wanted}: {shown}"
