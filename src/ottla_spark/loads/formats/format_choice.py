"""Chooses the format of a load and its schema: from options, an earlier run, or a sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.formats.binary_format import BinaryFormat, Decoder, Misfit
from ottla_spark.loads.formats.ddl_schema import read_spark_schema
from ottla_spark.loads.formats.decoders import bare, framed
from ottla_spark.loads.formats.json_format import JsonFormat
from ottla_spark.loads.formats.json_inference import infer
from ottla_spark.loads.formats.registry_frame import unframe
from ottla_spark.loads.formats.schema_registry import Registry
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.schema.evolution import difference, missing_fields, widened, without_names
from ottla_spark.loads.schema.table_columns import taken_names

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ottla_spark.loads.formats.format import Format


def choose_format(
    options: LoadOptions, saved: StructType | None, values: Sequence[bytes]
) -> Format | None:
    """Return the format of the values; None if they stay raw.

    `saved` is the schema of earlier runs, `values` are a sample.
    """
    if options.format is ValueFormat.RAW:
        return None
    if options.format is ValueFormat.JSON:
        return JsonFormat(_merge_schema(saved, _json_schema(options, saved, values), options))
    decoder, wanted = _binary(options, values, saved)
    return BinaryFormat(_merge_schema(saved, wanted, options), decoder)


def _merge_schema(saved: StructType | None, wanted: StructType, options: LoadOptions) -> StructType:
    """Return the schema to use: the saved one, with new fields if --evolve allows them."""
    if saved is None:
        if not wanted.fields:
            raise LoadError("the schema has no fields: set --schema")
        return wanted
    missing = missing_fields(saved, wanted)
    problem = difference(widened(saved, missing), wanted)
    if problem:
        raise LoadUsageError(f"the schema differs from that of earlier runs: {problem}")
    if missing.fields and not options.evolve:
        raise LoadUsageError(
            f"the schema has fields that the table lacks ({', '.join(missing.names)}):"
            " add them with --evolve"
        )
    return widened(saved, missing)


def _json_schema(
    options: LoadOptions, saved: StructType | None, values: Sequence[bytes]
) -> StructType:
    if options.schema is not None:
        return read_spark_schema(options.schema)
    if saved is not None:
        return saved
    found = without_names(infer(values), taken_names(options))
    if not found.fields:
        raise LoadError(f"{_none_of(values)} is a JSON object with fields: set --schema")
    return found


def _none_of(values: Sequence[bytes]) -> str:
    return f"none of {len(values)} values at the start and the end of the topic"


def _binary(
    options: LoadOptions, values: Sequence[bytes], saved: StructType | None
) -> tuple[Decoder, StructType]:
    if options.registry is not None:
        return _framed(options, Registry(options.registry, options.registry_login), values, saved)
    if options.schema is None:
        raise LoadUsageError(
            f"--format {options.format} needs --schema FILE, or --registry URL if the records"
            " were written with a schema registry"
        )
    return bare(options.format, Path(options.schema), options.message)


def _framed(
    options: LoadOptions, registry: Registry, values: Sequence[bytes], saved: StructType | None
) -> tuple[Decoder, StructType]:
    """Return the decoder, and the columns of the newest schema in the sample."""
    decoder = framed(options.format, registry, options.message)
    if saved is not None:
        return decoder, saved
    if options.schema is not None:
        return decoder, bare(options.format, Path(options.schema), options.message)[1]
    newest = _newest(values, decoder)
    if newest is None:
        raise LoadError(f"{_none_of(values)} has a schema of {registry.url}")
    return decoder.ignoring([newest]), decoder.fields_of(newest)


def _newest(values: Sequence[bytes], decoder: Decoder) -> str | None:
    """Return the decoder's name of the schema with the highest id. Each id is tried once."""
    by_id: dict[int, str] = {}
    for value in values:
        try:
            schema_id, _ = unframe(value)
            unknown = None if schema_id in by_id else decoder.decode(value).unknown
        except Misfit:
            continue
        if unknown is not None:
            by_id[schema_id] = unknown
    return by_id[max(by_id)] if by_id else None
