"""Records to rows and rows to records, in Spark's own expressions.

A record without a value (a tombstone) has nothing to decode and gives no row, except in
format raw. A record whose value does not fit the schema stops the query, is dropped, or gives
a row of nulls, as `bad_records` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.model import KEPT_PREFIX, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_BAD: Final = "__bad_record"
_DECODED: Final = "__decoded"


def record_columns(source: TopicSource) -> list[str]:
    """The columns of a record that decoding needs; nothing for all of them."""
    if source.format == "raw":
        return []
    return list(dict.fromkeys(["value", *(column.text for column in source.keep)]))


def decode(records: DataFrame, source: TopicSource, schema: StructType | None) -> DataFrame:
    """The rows of a topic's records."""
    from pyspark.sql import functions as f

    if source.format == "raw":
        return records
    kept = [f.col(column.text).alias(KEPT_PREFIX + column.text) for column in source.keep]
    present = records.where("value IS NOT NULL")
    text = f.col("value").cast("string")
    if source.format == "text" or schema is None:
        return present.select(text.alias("value"), *kept)
    rows = present.select(_from_json(text, schema, source).alias(_DECODED), *kept)
    if source.bad_records == "drop":
        rows = rows.where(f"{_DECODED}.{_BAD} IS NULL")
    fields = [f.col(_DECODED).getField(name).alias(name) for name in schema.names]
    return rows.select(*fields, *(f.col(KEPT_PREFIX + column.text) for column in source.keep))


def _from_json(text: Column, schema: StructType, source: TopicSource) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    if source.bad_records == "fail":
        return f.from_json(text, schema, {"mode": "FAILFAST"})
    marked = StructType([*schema.fields, StructField(_BAD, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    return f.from_json(text, marked, options)


def encode(rows: DataFrame, sink: TopicSink) -> DataFrame:
    """The records that a sink writes: key, value, and whatever else format raw has."""
    from pyspark.sql import functions as f

    if sink.format == "raw":
        return rows
    key = f.expr(sink.key.text).cast("string") if sink.key else f.lit(None).cast("string")
    if sink.format == "text":
        return rows.select(key.alias("key"), f.col("value").cast("string").alias("value"))
    value = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
    return rows.select(key.alias("key"), value.alias("value"))
