"""Checks that rows can be written to a sink: their columns, and the output mode."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.check.state_check import check_output_mode
from ottla_spark.pipelines.frames.records import encode
from ottla_spark.pipelines.spark_errors import index_in, plain_text, sentence
from ottla_spark.pipelines.spec.model import OUTPUT_MODES, Sink, TableSink, TopicSink
from ottla_spark.pipelines.spec.problems import Problems, closest, listed
from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.sink.row_schema import check_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RAW_COLUMNS: Final = ("key", "value", "headers", "topic", "partition")


def check_sink(sink: Sink, rows: DataFrame, problems: Problems) -> StructType | None:
    """Return the schema of what is written; None, with problems, if it cannot be written."""
    where = f"sinks.{sink.name}"
    twice = [name for name, count in Counter(map(str.lower, rows.columns)).items() if count > 1]
    if twice:
        message = f"{sink.input.text} has more than one column {listed(twice)}: rename one"
        problems.add(sink.input.line, f"{where}.from", message)
        return None
    if isinstance(sink, TableSink):
        schema: StructType | None = rows.schema
        _check_table(sink, rows, problems)
    else:
        schema = _records(sink, rows, problems)
    if problems.about(where):
        return None
    _check_mode(sink, rows, problems)
    return schema


def _check_table(sink: TableSink, rows: DataFrame, problems: Problems) -> None:
    where = f"sinks.{sink.name}"
    known = {column.lower() for column in rows.columns}
    if known and known <= {column.text.lower() for column in sink.partition_by}:
        message = "leaves no column for the files: name fewer columns"
        problems.add(sink.partition_by[0].line, f"{where}.partition_by", message)
    for key, columns in (("partition_by", sink.partition_by), ("upsert", sink.upsert)):
        for column in columns:
            if column.text.lower() not in known:
                hint = closest(column.text, rows.columns)
                message = f"there is no column {column.text!r}{hint}"
                problems.add(column.line, f"{where}.{key}", message)


def _records(sink: TopicSink, rows: DataFrame, problems: Problems) -> StructType | None:
    from pyspark.errors import PySparkException

    where = f"sinks.{sink.name}"
    why = _why_no_records(sink, rows)
    if why:
        problems.add(sink.input.line, f"{where}.from", why)
        return None
    try:
        schema = encode(rows, sink).schema
        check_schema(schema, sink.topic.text)
    except OptionError as error:
        problems.add(sink.input.line, f"{where}.from", str(error))
        return None
    except PySparkException as error:
        key = sink.key
        line = key.line_of(index_in(error, key.text)) if key else sink.line
        problems.add(line, f"{where}.key" if key else where, sentence(error))
        return None
    return schema


def _why_no_records(sink: TopicSink, rows: DataFrame) -> str | None:
    columns = {column.lower() for column in rows.columns}
    if sink.format == "json":
        return None
    if "value" not in columns:
        there = listed(rows.columns)
        return f"format {sink.format} needs a column named value; the columns are {there}"
    unexpected = columns - set(RAW_COLUMNS)
    if sink.format == "raw" and unexpected:
        return f"format raw takes {listed(RAW_COLUMNS)}, not {listed(sorted(unexpected))}"
    return None


def _check_mode(sink: Sink, rows: DataFrame, problems: Problems) -> None:
    why = _why_mode_impossible(rows, sink.mode)
    if why is None:
        return
    possible = [mode for mode in _modes_of(sink) if _why_mode_impossible(rows, mode) is None]
    advice = f"; possible modes: {listed(possible)}" if possible else ""
    problems.add(sink.mode_line, f"sinks.{sink.name}.mode", f"{why}{advice}")


def _modes_of(sink: Sink) -> tuple[str, ...]:
    if isinstance(sink, TopicSink):
        return OUTPUT_MODES
    return ("append", "update") if sink.upsert else ("append",)


def _why_mode_impossible(rows: DataFrame, mode: str) -> str | None:
    from pyspark.errors import AnalysisException

    try:
        check_output_mode(rows, mode)
    except AnalysisException as error:
        return plain_text(error.getMessage() or str(error))
    return None
