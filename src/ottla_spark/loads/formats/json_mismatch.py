"""Explains why a JSON value does not fit a schema. Used only for values that do not."""

from __future__ import annotations

import json
import re
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

SHOWN = 60
_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_SPECIAL_NUMBERS = ("NaN", "Infinity", "+Infinity", "-Infinity", "+INF", "INF", "-INF")
_LOOSE_TIME = re.compile(r"\d{4,6}(-(0?[1-9]|1[0-2])(-(0?[1-9]|[12]\d|3[01])([T ][\d:.]+\S*)?)?)?")


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
    if isinstance(kind, T.MapType):
        if not isinstance(value, dict):
            return _expected(path, "an object", value)
        inside = [_misfit(v, kind.valueType, f"{path}.{name}") for name, v in value.items()]
        return next((found for found in inside if found), "")
    return "" if _fits(value, kind) else _expected(path, kind.simpleString().upper(), value)


def _fits(value: object, kind: DataType) -> bool:
    """Return whether Spark can read a value that is not null as a simple type."""
    from pyspark.sql import types as T

    if isinstance(kind, T.BooleanType):
        return isinstance(value, bool)
    if isinstance(kind, T.IntegralType):
        bits = _BITS[kind.typeName()]
        return _is_whole(value) and -(1 << bits) <= value < 1 << bits
    if isinstance(kind, T.DecimalType):
        return _fits_decimal(value, kind.precision, kind.scale)
    if isinstance(kind, T.NumericType):
        return _is_number(value) or value in _SPECIAL_NUMBERS
    if isinstance(kind, T.TimestampType) and _is_whole(value):
        return True
    if isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        return isinstance(value, str) and _is_time(value)
    return True


def _fits_decimal(value: object, precision: int, scale: int) -> bool:
    """Return whether a number, or a text that is one, fits when it is rounded. 1,234.5 is one."""
    if isinstance(value, str) and value == value.strip():
        text = value.replace(",", "")
    elif _is_number(value):
        text = str(value)
    else:
        return False
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    unit = Decimal(1).scaleb(-scale)
    return number.is_finite() and abs(number) < 10 ** (precision - scale) - unit / 2


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return _is_whole(value) or isinstance(value, float)


def _is_time(text: str) -> bool:
    """Return whether a text is a date or a time. Spark accepts a few more forms than Python."""
    try:
        datetime.fromisoformat(text.strip())
    except ValueError:
        return bool(_LOOSE_TIME.fullmatch(text))
    return True


def _expected(path: str, wanted: str, value: object) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."
    return f"{path}: expected {wanted}, found {shown}" if path else f"expected {wanted}: {shown}"
