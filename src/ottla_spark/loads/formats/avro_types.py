"""Converts Avro's types to Spark's.

A union with null is the other type, and may be null. A union of int and long is BIGINT, one of
float and double is DOUBLE. Other unions, and schemas that contain themselves, have no column
type; the error names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla_spark.loads.errors import LoadUsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

AvroSchema: TypeAlias = Any
_DECIMAL_PRECISION = 38
_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def avro_struct(schema: AvroSchema) -> StructType:
    """Return the columns of a record schema."""
    from pyspark.sql.types import StructType

    found = _spark_type(schema, "value", {}, ())
    if not isinstance(found, StructType):
        raise LoadUsageError(f"the Avro schema is a {found.simpleString()}, but must be a record")
    return found


def _spark_type(
    schema: AvroSchema, path: str, named: dict[str, AvroSchema], inside: tuple[str, ...]
) -> DataType:
    from pyspark.sql import types as T

    if isinstance(schema, list):
        return _union(schema, path, named, inside)
    if isinstance(schema, str):
        if schema in inside:
            raise LoadUsageError(f"{path}: {schema} contains itself, so it has no column type")
        return (
            _spark_type(named[schema], path, named, inside)
            if schema in named
            else _plain(schema, path)
        )
    if "name" in schema and schema["type"] in {"record", "error", "enum", "fixed"}:
        named[schema["name"]] = schema
    logical = _logical(schema)
    if logical is not None:
        return logical
    kind = schema["type"]
    if kind in {"record", "error"}:
        deeper = (*inside, schema["name"])
        fields = [
            T.StructField(f["name"], _spark_type(f["type"], f"{path}.{f['name']}", named, deeper))
            for f in schema["fields"]
        ]
        return T.StructType(fields)
    if kind == "array":
        return T.ArrayType(_spark_type(schema["items"], f"{path}[]", named, inside))
    if kind == "map":
        values = _spark_type(schema["values"], f"{path}[]", named, inside)
        return T.MapType(T.StringType(), values)
    return (
        _spark_type(kind, path, named, inside) if not isinstance(kind, str) else _plain(kind, path)
    )


def _union(
    branches: list[AvroSchema], path: str, named: dict[str, AvroSchema], inside: tuple[str, ...]
) -> DataType:
    kinds = [branch for branch in branches if branch != "null"]
    if len(kinds) == 1:
        return _spark_type(kinds[0], path, named, inside)
    if all(isinstance(kind, str) for kind in kinds) and frozenset(kinds) in _WIDER:
        return _plain(_WIDER[frozenset(kinds)], path)
    raise LoadUsageError(f"{path}: a union of {len(kinds)} types has no column type")


def _logical(schema: Mapping[str, AvroSchema]) -> DataType | None:
    from pyspark.sql import types as T

    logical = schema.get("logicalType")
    if logical == "decimal" and 0 < schema.get("precision", 0) <= _DECIMAL_PRECISION:
        return T.DecimalType(schema["precision"], schema.get("scale", 0))
    kinds: dict[object, DataType] = {
        "date": T.DateType(),
        "timestamp-millis": T.TimestampType(),
        "timestamp-micros": T.TimestampType(),
        "local-timestamp-millis": T.TimestampNTZType(),
        "local-timestamp-micros": T.TimestampNTZType(),
        "uuid": T.StringType(),
        "time-millis": T.StringType(),
        "time-micros": T.StringType(),
    }
    return kinds.get(logical)


def _plain(kind: str, path: str) -> DataType:
    from pyspark.sql import types as T

    kinds: dict[str, DataType] = {
        "boolean": T.BooleanType(),
        "int": T.IntegerType(),
        "long": T.LongType(),
        "float": T.FloatType(),
        "double": T.DoubleType(),
        "string": T.StringType(),
        "enum": T.StringType(),
        "bytes": T.BinaryType(),
        "fixed": T.BinaryType(),
    }
    if kind not in kinds:
        raise LoadUsageError(f"{path}: Avro's type {kind!r} has no column type")
    return kinds[kind]
