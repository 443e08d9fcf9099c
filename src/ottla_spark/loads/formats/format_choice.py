"""The format of a load, and the schema it begins with: given, pinned earlier, or from a sample."""

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
from ottla_spark.loads.schema.evolution import difference, missing_fields, widened

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ottla_spark.loads.formats.format import Format


def choose_format(
    options: LoadOptions, pinned: StructType | None, values: Sequence[bytes]
) -> Format | None:
    """The format to read values with, None when they stay raw; `values` are a sample."""
    if options.format is ValueFormat.RAW:
        return None
    if options.format is ValueFormat.JSON:
        return JsonFormat(_settle(pinned, _json_schema(options, pinned, values), options))
    decoder, wanted = _binary(options, values, pinned)
    return BinaryFormat(_settle(pinned, wanted, options), decoder)


def _settle(pinned: StructType | None, wanted: StructType, options: LoadOptions) -> StructType:
    """The schema to go on with: the pinned one, wider if that is wanted and allowed."""
    if pinned is None:
        if not wanted.fields:
            raise LoadError("the schema has no fields: say with --schema what values hold")
        return wanted
    missing = missing_fields(pinned, wanted)
    problem = difference(widened(pinned, missing), wanted)
    if problem:
        raise LoadUsageError(f"the schema is not the one the table was loaded with: {problem}")
    if missing.fields and not options.evolve:
        raise LoadUsageError(
            f"the schema has fields that the table has not ({', '.join(missing.names)}):"
            " add them with --evolve"
        )
    return widened(pinned, missing)


def _json_schema(
    options: LoadOptions, pinned: StructType | None, values: Sequence[bytes]
) -> StructType:
    if options.schema is not None:
        return read_spark_schema(options.schema)
    if pinned is not None:
        return pinned
    found = infer(values)
    if not found.fields:
        raise LoadError(
            f"none of {len(values)} records that were looked at is a JSON object with fields:"
            " say with --schema what values hold"
        )
    return found


def _binary(
    options: LoadOptions, values: Sequence[bytes], pinned: StructType | None
) -> tuple[Decoder, StructType]:
    if options.registry is not None:
        return _framed(options, Registry(options.registry, options.registry_login), values, pinned)
    if options.schema is None:
        raise LoadUsageError(
            f"--format {options.format} needs --schema FILE, or --registry URL where records"
            " are framed for one"
        )
    return bare(options.format, Path(options.schema), options.message)


def _framed(
    options: LoadOptions, registry: Registry, values: Sequence[bytes], pinned: StructType | None
) -> tuple[Decoder, StructType]:
    """The newest schema that the sample names; later ones are news."""
    decoder = framed(options.format, registry, options.message)
    if pinned is not None:
        return decoder, pinned
    if options.schema is not None:
        return decoder, bare(options.format, Path(options.schema), options.message)[1]
    newest = _newest(values, decoder)
    if newest is None:
        raise LoadError(
            f"none of {len(values)} records that were looked at has a schema of {registry.url}"
        )
    return decoder.ignoring([newest]), decoder.fields_of(newest)


def _newest(values: Sequence[bytes], decoder: Decoder) -> str | None:
    """What the decoder calls the schema with the highest id; each id is tried once."""
    by_id: dict[int, str] = {}
    for value in values:
        try:
            schema_id, _ = unframe(value)
            news = None if schema_id in by_id else decoder.decode(value).news
        except Misfit:
            continue
        if news is not None:
            by_id[schema_id] = news
    return by_id[max(by_id)] if by_id else None
