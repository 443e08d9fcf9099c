"""Converts Spark's types to Arrow's and back, for the types that tables have.

Spark has such functions, but they are not part of its public API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla_spark.loads.errors import LoadUsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def udf_on_arrays(function: Callable[[Any], Any], returns: DataType | str) -> Any:
    """Return a Spark function that maps one Arrow array to another."""
    import pyarrow as pa
    from pyspark.sql.pandas import functions

    # Spark reads the types here.
    function.__annotations__ = {"values": pa.Array, "return": pa.Array}
    make: Any = functions.arrow_udf
    return make(function, returns)


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema of rows. Every field may be null."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in schema.fields])


def arrow_type(kind: DataType) -> Any:
    """Return the Arrow type of a Spark type; raise LoadUsageError if there is none."""
    import pyarrow as pa
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return pa.struct([pa.field(f.name, arrow_type(f.dataType)) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, T.MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    simple = _simple().get(kind.typeName())
    if simple is None:
        raise LoadUsageError(f"a column of type {kind.simpleString()} cannot be loaded")
    return simple


def spark_schema(schema: Any) -> StructType:
    """Return the Spark schema of an Arrow schema."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, _spark_type(field.type)) for field in schema])


def _spark_type(kind: Any) -> DataType:
    import pyarrow as pa
    from pyspark.sql import types as T

    if pa.types.is_struct(kind):
        return T.StructType([T.StructField(f.name, _spark_type(f.type)) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return T.ArrayType(_spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return T.MapType(_spark_type(kind.key_type), _spark_type(kind.item_type))
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)
    for name, arrow in _simple().items():
        if arrow == plain:
            return _named(name)
    raise LoadUsageError(f"the table has a column of type {kind}, which Ottla cannot load into")


def _named(name: str) -> DataType:
    from pyspark.sql import types as T

    kinds: list[DataType] = [
        T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(),
        T.FloatType(), T.DoubleType(), T.StringType(), T.BinaryType(), T.DateType(),
        T.TimestampType(), T.TimestampNTZType(),
    ]  # fmt: skip
    return next(kind for kind in kinds if kind.typeName() == name)


def _simple() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
