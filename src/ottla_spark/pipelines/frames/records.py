"""Decodes records of topics to rows, and encodes rows to records.

A record without a value (a tombstone) gives no row, except in format raw. If a value does not fit
the schema, `bad_records` decides: the query fails, the record is dropped, or the row has nulls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla_spark.loads.formats.binary_format import BinaryFormat
from ottla_spark.loads.formats.format import REASON, VALUE
from ottla_spark.loads.formats.json_format import JsonFormat
from ottla_spark.loads.formats.json_values import json_fits, json_value, parse_json
from ottla_spark.loads.run.dead_letters import COLUMNS, REASON_COLUMN, dead_letter_messages
from ottla_spark.pipelines.spec.model import (
    BINARY_FORMATS,
    DEAD_LETTERS,
    KEPT_PREFIX,
    TopicSink,
    TopicSource,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_PARSED: Final = "__parsed"
_TEXT: Final = "__text"
_SHOWN: Final = 60
_DECODED: Final = "__decoded"
_PLACE: Final = ("topic", "partition", "offset")


def record_columns(source: TopicSource) -> list[str]:
    """Return the columns of a record that decoding needs; empty for all of them."""
    if source.has_misfits_only:
        return list(COLUMNS)
    if source.format == "raw":
        return []
    place = _PLACE if source.format in BINARY_FORMATS else ()
    return list(dict.fromkeys(["value", *place, *(column.text for column in source.keep)]))


def decode(
    records: DataFrame, source: TopicSource, schema: StructType | BinaryFormat | None
) -> DataFrame:
    """Return the rows of a topic's records."""
    from pyspark.sql import functions as f

    if source.format == "raw":
        return records
    kept = [f.col(column.text).alias(KEPT_PREFIX + column.text) for column in source.keep]
    present = records.where("value IS NOT NULL")
    if source.has_misfits_only and schema is not None:
        return _misfits(present, schema)
    text = f.col("value").cast("string")
    if source.format == "text" or schema is None:
        return present.select(text.alias("value"), *kept)
    if isinstance(schema, BinaryFormat):
        names = schema.schema.names
        rows = _fitting(schema.decode(present), source).select(f.col(VALUE).alias(_DECODED), *kept)
    else:
        names = schema.names
        rows = present.select(parse_json(text, schema).alias(_PARSED), text.alias(_TEXT), *kept)
        if source.bad_records == "drop":
            rows = rows.where(json_fits(f.col(_PARSED), f.col(_TEXT)))
        value = _one_object(f.col(_PARSED), f.col(_TEXT), source).alias(_DECODED)
        rows = rows.select(value, *(f.col(KEPT_PREFIX + column.text) for column in source.keep))
    fields = [f.col(_DECODED).getField(name).alias(name) for name in names]
    return rows.select(*fields, *(f.col(KEPT_PREFIX + column.text) for column in source.keep))


def _misfits(records: DataFrame, schema: StructType | BinaryFormat) -> DataFrame:
    """Return the records that do not fit, with a reason."""
    from pyspark.sql import functions as f

    form = schema if isinstance(schema, BinaryFormat) else JsonFormat(schema)
    explained = form.explain(form.decode(records).where(f"{REASON} IS NOT NULL"))
    return explained.select(*COLUMNS, f.col(REASON).alias(REASON_COLUMN))


def _fitting(decoded: DataFrame, source: TopicSource) -> DataFrame:
    """Handle values that cannot be decoded, as `bad_records` says."""
    from pyspark.sql import functions as f

    if source.bad_records == "drop":
        return decoded.where(f"{REASON} IS NULL")
    if source.bad_records == "keep":
        return decoded
    place = f.concat_ws(" ", *(f.concat(f.lit(f"{name} "), f.col(name)) for name in _PLACE))
    why = f.concat(f.lit(f"sources.{source.name}: "), place, f.lit(": "), f.col(REASON))
    value = f.when(f.col(REASON).isNull(), f.col(VALUE)).otherwise(f.raise_error(why))
    return decoded.withColumn(VALUE, value)


def _one_object(parsed: Column, text: Column, source: TopicSource) -> Column:
    """Return the value of parsed JSON. One that does not fit is null, or fails the query."""
    from pyspark.sql import functions as f

    value = f.when(json_fits(parsed, text), json_value(parsed))
    if source.bad_records != "fail":
        return value
    shown = f.substring(text, 1, _SHOWN)
    why = f.concat(
        f.lit(f"Malformed records in sources.{source.name}: not one JSON object of the schema: "),
        shown,
        f.lit("; set dead_letters, or `bad_records: drop` or `keep`, at the source to continue"),
    )
    return value.otherwise(f.raise_error(why))


def encode(rows: DataFrame, sink: TopicSink) -> DataFrame:
    """Return the records that a sink writes: key, value, and the other columns of format raw."""
    from pyspark.sql import functions as f

    if sink.format == "raw":
        return rows
    if sink.format == DEAD_LETTERS:
        return dead_letter_messages(rows, REASON_COLUMN)
    key = f.expr(sink.key.text).cast("string") if sink.key else f.lit(None).cast("string")
    if sink.format == "text":
        return rows.select(key.alias("key"), f.col("value").cast("string").alias("value"))
    value = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
    return rows.select(key.alias("key"), value.alias("value"))
