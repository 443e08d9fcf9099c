"""The key `dead_letters` of a source: where records go that do not fit its schema.

A source `orders` with this key gets a second source and a sink, both named `orders_dead_letters`.
They read the topic in a query of their own and write the records that do not fit, with a reason.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ottla_spark.pipelines.spec.fields import Fields
from ottla_spark.pipelines.spec.model import DEAD_LETTERS, Sink, TableSink, TopicSink, TopicSource
from ottla_spark.pipelines.spec.table_place import parse_place
from ottla_spark.pipelines.spec.yaml_tree import Scalar

SUFFIX = "_dead_letters"
_NEW_TOPIC_PARTITIONS = 1


def check_dead_letters(source: TopicSource, fields: Fields, file: Path) -> TopicSource:
    """Return the source as it runs: with dead letters, records that do not fit give no row."""
    if source.dead_letters is None:
        return source
    if fields.has("bad_records"):
        fields.complain("bad_records", "is not needed: dead_letters keeps these records elsewhere")
    sink = _sink(source, source.dead_letters, file)
    if isinstance(sink, str):
        fields.complain("dead_letters", sink, source.dead_letters.line)
    return replace(source, bad_records="drop")


def dead_letter_ends(source: TopicSource, file: Path) -> tuple[TopicSource, Sink] | None:
    """Return the source of the records that do not fit, and the sink that writes them."""
    if source.dead_letters is None:
        return None
    sink = _sink(source, source.dead_letters, file)
    if isinstance(sink, str):
        return None
    misfits = replace(
        source,
        name=source.name + SUFFIX,
        keep=(),
        watermark=None,
        dead_letters=None,
        has_misfits_only=True,
    )
    return misfits, sink


def _sink(source: TopicSource, written: Scalar, file: Path) -> Sink | str:
    """Return the sink that a text names, or a message about what is wrong with the text."""
    name, line = source.name + SUFFIX, written.line
    relation = Scalar(line, name)
    kind, _, rest = written.text.partition(":")
    if kind == "topic" and rest:
        topic = Scalar(line, rest)
        return TopicSink(
            name=name,
            line=line,
            input=relation,
            topic=topic,
            format=DEAD_LETTERS,
            key=None,
            partitions=_NEW_TOPIC_PARTITIONS,
            mode="append",
            mode_line=line,
            options={},
        )
    place = parse_place(written, file)
    if isinstance(place, str):
        return f"{place}, or topic:NAME"
    return TableSink(name, line, relation, place, (), (), "append", line)
