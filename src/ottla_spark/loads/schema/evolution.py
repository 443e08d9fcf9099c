"""Compares and extends the schemas of tables."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NULLABILITY: Final = ("nullable", "containsNull", "valueContainsNull")


def as_nullable(schema: StructType) -> StructType:
    """Return the schema with nulls allowed everywhere, because later rows may have some."""
    from pyspark.sql.types import StructType

    def allow(part: dict[str, Any]) -> dict[str, Any]:
        return part | {name: True for name in _NULLABILITY if name in part}

    return StructType.fromJson(json.loads(schema.json(), object_hook=allow))


def missing_fields(table: StructType, wanted: StructType) -> StructType:
    """Return the fields of `wanted` that the table lacks. A struct has only its new fields.

    Leave out a field whose name differs from an existing one only by case: tables cannot have both.
    """
    from pyspark.sql.types import StructField, StructType

    found: list[StructField] = []
    for field in wanted.fields:
        if field.name not in table.names:
            if field.name.lower() not in {name.lower() for name in table.names}:
                found.append(field)
            continue
        inside, new = table[field.name].dataType, field.dataType
        if isinstance(inside, StructType) and isinstance(new, StructType):
            deeper = missing_fields(inside, new)
            if deeper.fields:
                found.append(StructField(field.name, deeper))
    return StructType(found)


def without_names(schema: StructType, taken: Collection[str]) -> StructType:
    """Return the schema without the fields whose names, in lower case, are taken."""
    from pyspark.sql.types import StructType

    return StructType([field for field in schema.fields if field.name.lower() not in taken])


def widened(schema: StructType, added: StructType) -> StructType:
    """Return the schema with these fields added, also in structs. Old fields keep their order."""
    from pyspark.sql.types import StructField, StructType

    fields = []
    for field in schema.fields:
        more = added[field.name].dataType if field.name in added.names else None
        if isinstance(field.dataType, StructType) and isinstance(more, StructType):
            fields.append(StructField(field.name, widened(field.dataType, more)))
        else:
            fields.append(field)
    fresh = [field for field in added.fields if field.name not in schema.names]
    return StructType(fields + fresh)


def difference(table: StructType, wanted: StructType) -> str:
    """Return why rows of `wanted` cannot be added to the table; empty if they can."""
    for field in wanted.fields:
        if field.name not in table.names:
            return f"the table has no {field.name} (--evolve adds it)"
        problem = _type_difference(table[field.name].dataType, field.dataType)
        if problem:
            return f"{field.name} {problem}"
    return ""


def _type_difference(table: DataType, wanted: DataType) -> str:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(table, StructType) and isinstance(wanted, StructType):
        problem = difference(table, wanted)
        return f"has different fields: {problem}" if problem else ""
    if isinstance(table, ArrayType) and isinstance(wanted, ArrayType):
        return _type_difference(table.elementType, wanted.elementType)
    if table.simpleString() != wanted.simpleString():
        return f"is {table.simpleString()} in the table and {wanted.simpleString()} in the records"
    return ""
