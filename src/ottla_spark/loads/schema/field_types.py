"""The fields of a schema as paths and types, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def field_types(schema: StructType, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and type of every field, for messages."""
    from pyspark.sql.types import StructType

    for field in schema.fields:
        if isinstance(field.dataType, StructType) and prefix + field.name:
            inside = list(field_types(field.dataType, f"{prefix}{field.name}."))
            if inside:
                yield from inside
                continue
        yield f"{prefix}{field.name}", field.dataType.simpleString().upper()
