"""Checks the columns of a DataFrame that is written, by the rules of Spark's own Kafka sink.

`value` is required, and `topic` unless the option is set. `key`, `headers` and `partition` are
optional. Other columns are ignored.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from pyspark_ottla.options.option_values import OptionError


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raise OptionError, with the text of Spark's own sink, for columns that cannot be written."""
    types = {field.name: field.dataType for field in reversed(schema.fields)}
    if topic is None:
        if "topic" not in types:
            raise OptionError(
                "topic option required when no 'topic' attribute is present."
                " Use the topic option for setting a topic."
            )
        _check("topic", types["topic"], _is_string(types["topic"]), "string")
    if "value" not in types:
        raise OptionError("Required attribute 'value' not found")
    for name in ("key", "value"):
        if name in types:
            _check(name, types[name], _is_string_or_binary(types[name]), "string or binary")
    if "headers" in types:
        wanted = "array<struct<key:string,value:binary>>"
        _check("headers", types["headers"], _are_headers(types["headers"]), wanted)
    if "partition" in types:
        is_int = isinstance(types["partition"], IntegerType)
        _check("partition", types["partition"], is_int, "int")


def _check(name: str, found: DataType, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise OptionError(
            f"{name} attribute unsupported type {found.simpleString()}."
            f" {name} must be a(n) {wanted}"
        )


def _is_string(found: DataType) -> bool:
    return isinstance(found, StringType)


def _is_string_or_binary(found: DataType) -> bool:
    return isinstance(found, StringType | BinaryType)


def _are_headers(found: DataType) -> bool:
    if not (isinstance(found, ArrayType) and isinstance(found.elementType, StructType)):
        return False
    parts = [(part.name, type(part.dataType)) for part in found.elementType.fields]
    return parts == [("key", StringType), ("value", BinaryType)]
