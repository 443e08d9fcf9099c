"""Schemas of tables: what one lacks, what stands against adding it, and what may be null."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NULLABILITY: Final = ("nullable", "containsNull", "valueContainsNull")


def as_nullable(schema: StructType) -> StructType:
    """The schema with nulls allowed everywhere: rows without any may be followed by some with."""
    from pyspark.sql.types import StructType

    def allow(part: dict[str, Any]) -> dict[str, Any]:
        return part | {name: True for name in _NULLABILITY if name in part}

    return StructType.fromJson(json.loads(schema.json(), object_hook=allow))


def missing_fields(table: StructType, wanted: StructType) -> StructType:
    """The fields of `wanted` that the table lacks; a struct appears with its new fields only.

    One whose name differs from another's by case alone is left out: tables take no such pair.
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


def widened(schema: StructType, added: StructType) -> StructType:
    """The schema with these fields added, in structs too; the old ones keep their places."""
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
    """Why rows of `wanted` cannot be added to the table; empty when they can."""
    for field in wanted.fields:
        if field.name not in table.names:
            return f"it has no {field.name} (add it with --evolve)"
        problem = _type_difference(table[field.name].dataType, field.dataType)
        if problem:
            return f"{field.name} {problem}"
    return ""


def _type_difference(table: DataType, wanted: DataType) -> str:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(table, StructType) and isinstance(wanted, StructType):
        problem = difference(table, wanted)
        return f"differs inside: {problem}" if problem else ""
    if isinstance(table, ArrayType) and isinstance(wanted, ArrayType):
        return _type_difference(table.elementType, wanted.elementType)
    if table.simpleString() != wanted.simpleString():
        return f"is {table.simpleString()} there and {wanted.simpleString()} here"
    return ""
