"""Converts Protobuf messages to columns.

Enums are text, unsigned 32-bit numbers BIGINT, unsigned 64-bit numbers DECIMAL(20,0). Timestamp and
the wrapper types of google.protobuf become plain values, its other types JSON text. An unset
field has its default if it has no presence (proto3), and is null otherwise. A message that
contains itself has no column type and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ottla_spark.loads.errors import LoadUsageError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message
    from pyspark.sql.types import DataType, StructType

_WELL_KNOWN = "google.protobuf."
_TIMESTAMP = f"{_WELL_KNOWN}Timestamp"
_WRAPPERS = frozenset(
    f"{_WELL_KNOWN}{kind}Value"
    for kind in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
_JSON = frozenset(
    f"{_WELL_KNOWN}{kind}"
    for kind in ("Any", "Struct", "Value", "ListValue", "FieldMask", "Duration")
)


def message_struct(descriptor: Descriptor) -> StructType:
    """Return the columns of a message."""
    return _struct(descriptor, (descriptor.full_name,))


def message_fields(message: Message) -> dict[str, object]:
    """Return the values of a message's fields by column name."""
    return {field.name: _value_of(message, field) for field in message.DESCRIPTOR.fields}


def _struct(descriptor: Descriptor, inside: tuple[str, ...]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, _field_type(f, inside)) for f in descriptor.fields])


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import ArrayType, MapType

    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_single_type(entry["key"], inside), _single_type(entry["value"], inside))
    single = _single_type(field, inside)
    return ArrayType(single) if field.is_repeated else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import StringType, TimestampType

    if field.type not in {field.TYPE_MESSAGE, field.TYPE_GROUP}:
        return _scalar_type(field)
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return TimestampType()
    if name in _WRAPPERS:
        return _scalar_type(field.message_type.fields_by_name["value"])
    if name in _JSON:
        return StringType()
    if name in inside:
        raise LoadUsageError(f"{field.full_name}: {name} contains itself, so it has no column type")
    return _struct(field.message_type, (*inside, name))


def _scalar_type(field: FieldDescriptor) -> DataType:
    from pyspark.sql import types as T

    kinds: dict[int, DataType] = {
        field.TYPE_BOOL: T.BooleanType(),
        field.TYPE_STRING: T.StringType(),
        field.TYPE_ENUM: T.StringType(),
        field.TYPE_BYTES: T.BinaryType(),
        field.TYPE_FLOAT: T.FloatType(),
        field.TYPE_DOUBLE: T.DoubleType(),
        field.TYPE_INT32: T.IntegerType(),
        field.TYPE_SINT32: T.IntegerType(),
        field.TYPE_SFIXED32: T.IntegerType(),
        field.TYPE_UINT64: T.DecimalType(20, 0),
        field.TYPE_FIXED64: T.DecimalType(20, 0),
    }
    return kinds.get(field.type, T.LongType())


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def _value_of(message: Message, field: FieldDescriptor) -> object:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        key, value = _converter(entry["key"]), _converter(entry["value"])
        return [(key(k), value(v)) for k, v in getattr(message, field.name).items()]
    if field.is_repeated:
        return [_converter(field)(each) for each in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _converter(field)(getattr(message, field.name))


def _converter(field: FieldDescriptor) -> Callable[[Any], object]:
    if field.type in {field.TYPE_MESSAGE, field.TYPE_GROUP}:
        return _message_converter(field.message_type)
    if field.type == field.TYPE_ENUM:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    if field.type in {field.TYPE_UINT64, field.TYPE_FIXED64}:
        return Decimal
    return lambda value: value


def _message_converter(descriptor: Descriptor) -> Callable[[Any], object]:
    from google.protobuf.json_format import MessageToJson

    name = descriptor.full_name
    if name == _TIMESTAMP:
        return _microseconds
    if name in _WRAPPERS:
        convert = _converter(descriptor.fields_by_name["value"])
        return lambda message: convert(message.value)
    if name in _JSON:
        return lambda message: MessageToJson(message, indent=None)
    return message_fields


def _microseconds(timestamp: Any) -> int:
    """Return microseconds since 1970, which Arrow accepts as a timestamp."""
    return int(timestamp.seconds) * 1_000_000 + int(timestamp.nanos) // 1000
