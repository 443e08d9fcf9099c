"""The decoder of a binary format: for bare values with the schema of a file, or for framed ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.loads.formats.avro import (
    BareAvro,
    FramedAvro,
    avro_schema_struct,
    read_avro_file,
)
from ottla_spark.loads.formats.binary_format import Decoder
from ottla_spark.loads.formats.proto_files import read_proto_file
from ottla_spark.loads.formats.protobuf import BareProtobuf, FramedProtobuf, proto_struct
from ottla_spark.loads.formats.schema_registry import Registry
from ottla_spark.loads.options.value_format import ValueFormat

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def bare(kind: ValueFormat, schema: Path, message: str | None) -> tuple[Decoder, StructType]:
    """How values without a frame are decoded with this schema, and the columns they have."""
    if kind is ValueFormat.AVRO:
        text = read_avro_file(schema)
        return BareAvro(text), avro_schema_struct(text, str(schema))
    descriptors = read_proto_file(schema)
    fields = proto_struct(descriptors, message, str(schema))
    return BareProtobuf(descriptors, message), fields


def framed(kind: ValueFormat, registry: Registry, message: str | None) -> Decoder:
    """How values that name their schema are decoded, with what the registry has."""
    if kind is ValueFormat.AVRO:
        return FramedAvro(registry, frozenset())
    return FramedProtobuf(registry, message, frozenset())
