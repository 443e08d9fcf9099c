"""Reads one sink: a topic or a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ottla_spark.loads.targets.registry import upsert_schemes
from ottla_spark.pipelines.spec.fields import Fields
from ottla_spark.pipelines.spec.model import (
    OUTPUT_MODES,
    TOPIC_SINK_FORMATS,
    Sink,
    TableSink,
    TopicSink,
)
from ottla_spark.pipelines.spec.shared_keys import read_inputs
from ottla_spark.pipelines.spec.table_place import parse_place
from ottla_spark.pipelines.spec.yaml_tree import Scalar


def read_sink(name: str, fields: Fields, file: Path, names: Sequence[str]) -> Sink | None:
    """Read a sink; return None, with a problem, if it is incomplete.

    `names` are the sources and steps of the file.
    """
    kind = fields.one_of("topic", "table")
    if kind is None:
        return None
    written = read_inputs(fields, names, "name the source or step to write")
    if len(written) > 1:
        fields.complain("from", "a sink writes one source or step; UNION several in a step")
    first = written[0] if written else Scalar(fields.line, "")
    sink = _topic(name, fields, first) if kind == "topic" else _table(name, fields, first, file)
    return sink if len(written) == 1 else None


def _topic(name: str, fields: Fields, written: Scalar) -> Sink | None:
    topic = fields.word("topic")
    sink = TopicSink(
        name=name,
        line=fields.line,
        input=written,
        topic=topic or Scalar(fields.line, ""),
        format=fields.choice("format", TOPIC_SINK_FORMATS, "json"),
        key=fields.word("key"),
        partitions=fields.count("partitions"),
        mode=fields.choice("mode", OUTPUT_MODES, "append"),
        mode_line=fields.line_of("mode"),
        options=fields.pairs("options"),
    )
    if sink.format == "raw" and sink.key is not None:
        fields.complain("key", "is not needed: format raw takes the key from the column named key")
    return sink if topic else None


def _table(name: str, fields: Fields, written: Scalar, file: Path) -> Sink | None:
    text = fields.word("table")
    partition_by, upsert = fields.words("partition_by"), fields.words("upsert")
    mode = fields.choice("mode", OUTPUT_MODES, "update" if upsert else "append")
    if text is None:
        return None
    place = parse_place(text, file)
    if isinstance(place, str):
        fields.complain("table", place, text.line)
        return None
    if mode != "append" and not upsert:
        fields.complain("mode", "a table needs append, or update with `upsert: [columns]`")
    why = place.target.why_no_upsert(len(upsert)) if upsert else ""
    if why:
        hint = f"; use {upsert_schemes()}" if place.target.why_no_upsert(1) else ""
        fields.complain("upsert", f"{why}{hint}")
    if upsert and mode == "complete":
        fields.complain("mode", "upsert needs update or append")
    line = fields.line_of("mode")
    return TableSink(name, fields.line, written, place, partition_by, upsert, mode, line)
