"""Decodes Avro values, with one schema from a file or with the schemas of a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.avro_references import whole_schema
from ottla_spark.loads.formats.avro_types import AvroSchema, avro_struct
from ottla_spark.loads.formats.binary_format import Decoded, Misfit
from ottla_spark.loads.formats.registry_frame import unframe
from ottla_spark.loads.formats.schema_registry import Registry, UnknownSchema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MAX_CACHED_SCHEMAS = 1000


def read_avro_file(path: Path) -> str:
    """Return the text of a schema file; raise LoadUsageError if it is no Avro schema."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LoadUsageError(f"cannot read the schema {path}: {error.strerror}") from None
    _parse(text, str(path))
    return text


def avro_schema_struct(text: str, source: str) -> StructType:
    """Return the columns of a schema."""
    return avro_struct(_parse(text, source))


class BareAvro:
    """Values without a frame, all written with one schema."""

    def __init__(self, schema_text: str) -> None:
        self._schema_text = schema_text

    def decode(self, value: bytes) -> Decoded:
        """Return the fields of a value."""
        return Decoded(_read(value, _parsed(self._schema_text)))

    def fields_of(self, unknown: str) -> StructType:
        """Raise AssertionError: with one known schema, nothing is new."""
        raise AssertionError(unknown)

    def ignoring(self, unknown: Sequence[str]) -> BareAvro:
        """Return the same decoder."""
        return self


class FramedAvro:
    """Values whose frame names the schema. `known` are ids whose fields are not new."""

    def __init__(self, registry: Registry, known: frozenset[int]) -> None:
        self._registry = registry
        self._known = known

    def decode(self, value: bytes) -> Decoded:
        """Return the fields of a value, read with the schema that it was written with."""
        schema_id, start = unframe(value)
        try:
            text = _whole(self._registry, schema_id)
        except UnknownSchema as error:
            raise Misfit(str(error)) from None
        fields = _read(value[start:], _parsed(text))
        return Decoded(fields, None if schema_id in self._known else str(schema_id))

    def fields_of(self, unknown: str) -> StructType:
        """Return the fields of the schema with this id."""
        return avro_schema_struct(_whole(self._registry, int(unknown)), f"schema {unknown}")

    def ignoring(self, unknown: Sequence[str]) -> FramedAvro:
        """Return a decoder that also knows these ids."""
        return FramedAvro(self._registry, self._known | {int(each) for each in unknown})


@lru_cache(maxsize=MAX_CACHED_SCHEMAS)
def _whole(registry: Registry, schema_id: int) -> str:
    schema = registry.schema(schema_id)
    if schema.kind != "AVRO":
        raise LoadUsageError(f"schema {schema_id} is {schema.kind}, not Avro: change --format")
    return whole_schema(registry, schema)


@lru_cache(maxsize=MAX_CACHED_SCHEMAS)
def _parsed(text: str) -> AvroSchema:
    return _parse(text, "the schema")


def _parse(text: str, source: str) -> AvroSchema:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as error:
        raise LoadUsageError(f"{source} is not an Avro schema: {error}") from None


def _read(value: bytes, schema: AvroSchema) -> dict[str, object]:
    """Return the one record in the value; raise Misfit if there is none, or more bytes."""
    import fastavro

    stream = io.BytesIO(value)
    try:
        record = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:  # fastavro raises many types for invalid bytes
        raise Misfit(f"not Avro of this schema: {type(error).__name__} {error}".strip()) from None
    left = len(value) - stream.tell()
    if left:
        raise Misfit(f"not Avro of this schema: {left} bytes are left after it")
    if not isinstance(record, dict):
        raise Misfit("not an Avro record")
    return {name: _plain(field) for name, field in record.items()}


def _plain(value: Any) -> object:
    """Turn values of logical types without a column type into text."""
    if isinstance(value, dict):
        return {name: _plain(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [_plain(inside) for inside in value]
    if isinstance(value, time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
