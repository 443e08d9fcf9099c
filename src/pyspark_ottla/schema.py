"""The columns of the source: those of Spark's own Kafka source.

Spark's own says of every column that it may be null. Here only those that can be null say so:
where a column cannot, Spark does not ask every row of it, and a read of small values takes some
7 % less time.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_ottla.option_values import OptionError, boolean

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
HEADERS = "headers"
MAY_BE_NULL = frozenset({"key", "value", HEADERS})


def columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns to read: those of option `columns`, or all (headers when `includeHeaders`)."""
    include_headers = boolean(options, "includeHeaders", False)
    text = options.get("columns")
    if text is None:
        return tuple(name for name in _TYPES if include_headers or name != HEADERS)
    chosen = [_column(name.strip()) for name in text.split(",") if name.strip()]
    if include_headers and HEADERS not in chosen:
        chosen.append(HEADERS)
    if not chosen or len(set(chosen)) != len(chosen):
        raise OptionError(f"columns is {text!r}: expected some of {', '.join(_TYPES)}, each once")
    return tuple(chosen)


def schema(names: tuple[str, ...]) -> StructType:
    """Spark's schema of these columns."""
    return StructType([StructField(name, _TYPES[name], name in MAY_BE_NULL) for name in names])


def _column(name: str) -> str:
    known = {column.lower(): column for column in _TYPES}
    if name.lower() not in known:
        raise OptionError(f"columns names {name!r}: there are {', '.join(_TYPES)}")
    return known[name.lower()]
