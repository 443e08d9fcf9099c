"""Draws a pipeline as a tree for each sink, down to its sources, with all schemas.

A part that several sinks share is drawn in full once, and then only by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ottla_spark.pipelines.check.pipeline_check import Checked
from ottla_spark.pipelines.frames.topic_options import sink_options
from ottla_spark.pipelines.spec.graph import Relation
from ottla_spark.pipelines.spec.model import (
    DedupStep,
    Every,
    FileSource,
    Once,
    PythonStep,
    Sink,
    SqlStep,
    TableSink,
    TableSource,
    TopicSource,
    Trigger,
)
from pyspark_ottla.options.sink_options import sink_settings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Json: TypeAlias = dict[str, object]


@dataclass
class Box:
    """A sink, step or source in the picture. Its inputs are drawn below it."""

    kind: str
    name: str
    says: str
    columns: list[tuple[str, str]]
    inputs: list[Box] = field(default_factory=list)
    is_repeated: bool = False


def draw(checked: Checked) -> list[Box]:
    """Return a box for each sink, with everything it reads below."""
    drawn: set[str] = set()
    return [_sink_box(checked, sink, drawn) for sink in checked.spec.sinks.values()]


def heading(checked: Checked) -> str:
    """Return the pipeline in one line."""
    spec = checked.spec
    return f"{spec.name}: {trigger_words(spec.trigger)}, state in {spec.state.text}"


def trigger_words(trigger: Trigger) -> str:
    """Return the trigger as text."""
    if isinstance(trigger, Once):
        return "once"
    if isinstance(trigger, Every):
        return f"every {duration_words(trigger.interval_ms)}"
    pace = f", a batch every {duration_words(trigger.interval_ms)}" if trigger.interval_ms else ""
    return f"always{pace}"


def duration_words(length_ms: int) -> str:
    """Return a duration in its largest whole unit."""
    for unit, unit_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if length_ms and length_ms % unit_ms == 0:
            count = length_ms // unit_ms
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{length_ms / 1000:g} s"


def as_json(checked: Checked) -> Json:
    """Return the picture as JSON."""
    spec, analysis = checked.spec, checked.analysis
    relations = [checked.graph.relation(name) for name in checked.graph.order(*_all(checked))]
    return {
        "name": spec.name,
        "trigger": trigger_words(spec.trigger),
        "state": spec.state_path,
        "bootstrap_servers": spec.bootstrap_servers,
        "relations": [
            {
                "name": found.name,
                "kind": _kind(found),
                "from": list(checked.graph.inputs(found.name)),
                "says": _says(checked, found),
                "streams": checked.graph.streams(found.name),
                "columns": dict(_columns(analysis.relations.get(found.name))),
            }
            for found in relations
        ],
        "sinks": [
            {
                "name": sink.name,
                "from": checked.graph.known(sink.input.text),
                "says": _sink_says(checked, sink),
                "group": spec.group_of(sink.name),
                "checkpoint": spec.checkpoint_of(sink.name),
                "columns": dict(_columns(analysis.sinks.get(sink.name))),
            }
            for sink in spec.sinks.values()
        ],
    }


def _all(checked: Checked) -> list[str]:
    return [*checked.spec.sources, *checked.spec.steps]


def _sink_box(checked: Checked, sink: Sink, drawn: set[str]) -> Box:
    columns = _columns(checked.analysis.sinks.get(sink.name))
    box = Box("sink", sink.name, _sink_says(checked, sink), columns)
    name = checked.graph.known(sink.input.text)
    if name is not None:
        box.inputs.append(_relation_box(checked, name, drawn))
    return box


def _relation_box(checked: Checked, name: str, drawn: set[str]) -> Box:
    relation = checked.graph.relation(name)
    columns = _columns(checked.analysis.relations.get(name))
    box = Box(_kind(relation), name, _says(checked, relation), columns)
    if name in drawn:
        box.is_repeated = True
        return box
    drawn.add(name)
    box.inputs += [_relation_box(checked, needed, drawn) for needed in checked.graph.inputs(name)]
    return box


def _kind(relation: Relation) -> str:
    return "step" if isinstance(relation, SqlStep | PythonStep | DedupStep) else "source"


def _columns(schema: StructType | None) -> list[tuple[str, str]]:
    fields = [] if schema is None else schema.fields
    return [(column.name, column.dataType.simpleString()) for column in fields]


def _says(checked: Checked, relation: Relation) -> str:
    words = [_what(checked, relation)]
    if relation.watermark is not None:
        delay = duration_words(relation.watermark.delay_ms)
        words.append(f"watermark {relation.watermark.column.text} - {delay}")
    return ", ".join(words)


def _what(checked: Checked, relation: Relation) -> str:
    if isinstance(relation, TopicSource):
        return _topic_words(checked, relation)
    if isinstance(relation, TableSource):
        return f"table {relation.place.written.text}"
    if isinstance(relation, FileSource):
        return f"{relation.format} files {relation.path.text}" + (
            " as they come" if relation.streams else ""
        )
    if isinstance(relation, PythonStep):
        return f"python {relation.function.text}"
    if isinstance(relation, DedupStep):
        return f"dedup by {', '.join(column.text for column in relation.columns)}"
    return " ".join(relation.sql.text.split())


def _topic_words(checked: Checked, source: TopicSource) -> str:
    if source.pattern is not None:
        return f"topics like {source.pattern.text}, {source.format}"
    names = [topic.text for topic in source.topics]
    partitions = sum(checked.topics.get(name, 0) for name in names)
    words = f"topic{'s' if len(names) > 1 else ''} {', '.join(names)}"
    count = f" ({partitions} partition{'s' if partitions != 1 else ''})" if partitions else ""
    misfits = ", the records that do not fit" if source.has_misfits_only else ""
    return f"{words}{count}, {source.format}{misfits}"


def _sink_says(checked: Checked, sink: Sink) -> str:
    if isinstance(sink, TableSink):
        parts = ", ".join(column.text for column in sink.partition_by)
        by = f", partitioned by {parts}" if parts else ""
        keys = ", ".join(column.text for column in sink.upsert)
        how = f"upsert by {keys}" if keys else sink.mode
        return f"table {sink.place.written.text}{by}, {how}, exactly once"
    is_new = sink.topic.text not in checked.topics and sink.partitions
    new = f" (new, {sink.partitions} partitions)" if is_new else ""
    key = f", key {sink.key.text}" if sink.key else ""
    once = sink_settings(sink_options(checked.spec, sink)).exactly_once
    how_often = "exactly once" if once else "at least once"
    return f"topic {sink.topic.text}{new}, {sink.format}{key}, {sink.mode}, {how_often}"
