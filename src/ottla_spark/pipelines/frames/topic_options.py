"""The options of the data source `ottla` for the topics of a pipeline."""

from __future__ import annotations

from typing import Final

from ottla_spark.pipelines.frames.records import record_columns
from ottla_spark.pipelines.spec.model import PipelineSpec, TopicSink, TopicSource

ISOLATION_LEVEL: Final = "kafka.isolation.level"


def source_options(spec: PipelineSpec, source: TopicSource, group: str) -> dict[str, str]:
    """Return the options to read a topic source, with offsets committed to a group.

    Only committed records are read, unless the source has another isolation level.
    """
    options = _client_options(spec)
    options[ISOLATION_LEVEL] = "read_committed"
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern.text
    else:
        options["subscribe"] = ",".join(topic.text for topic in source.topics)
    options["startingOffsets"] = source.starting.text if source.starting else "earliest"
    options["groupId"] = group
    columns = record_columns(source)
    if columns:
        options["columns"] = ",".join(columns)
    if "headers" in columns:
        options["includeHeaders"] = "true"
    given = {name: value.text for name, value in source.options.items()}
    named = {name.lower() for name in given}
    return {name: text for name, text in options.items() if name.lower() not in named} | given


def sink_options(spec: PipelineSpec, sink: TopicSink) -> dict[str, str]:
    """Return the options to write a topic sink."""
    options = _client_options(spec) | {"topic": sink.topic.text}
    return options | {name: value.text for name, value in sink.options.items()}


def _client_options(spec: PipelineSpec) -> dict[str, str]:
    properties = {f"kafka.{name}": value.text for name, value in spec.kafka.items()}
    return {**properties, "kafka.bootstrap.servers": spec.bootstrap_servers}
