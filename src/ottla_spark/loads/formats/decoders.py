"""Creates decoders of Avro and Protobuf, for values with or without a registry's frame."""

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
    """Return the decoder and the columns for values without a frame, by a schema file."""
    if kind is ValueFormat.AVRO:
        text = read_avro_file(schema)
        return BareAvro(text), avro_schema_struct(text, str(schema))
    descriptors = read_proto_file(schema)
    fields = proto_struct(descriptors, message, str(schema))
    return BareProtobuf(descriptors, message), fields


def framed(kind: ValueFormat, registry: Registry, message: str | None) -> Decoder:
    """Return the decoder for values whose frame names a schema of the registry."""
    if kind is ValueFormat.AVRO:
        return FramedAvro(registry, frozenset())
    return FramedProtobuf(registry, message, frozenset())
