"""Checks that the topics of a pipeline exist."""

from __future__ import annotations

import re

from ottla.client.errors import ClientError
from ottla.client.settings import SettingError
from ottla.client.topics.topics import list_topics
from ottla_spark.pipelines.cluster import connect, missing_sinks
from ottla_spark.pipelines.spec.model import PipelineSpec, TopicSink, TopicSource
from ottla_spark.pipelines.spec.problems import Problems, closest


def topic_partitions(spec: PipelineSpec, problems: Problems) -> dict[str, int] | None:
    """Return the partition counts of all topics; None, with a problem, if no broker answers."""
    if not any(isinstance(end, TopicSource | TopicSink) for end in _ends(spec)):
        return {}
    try:
        with connect(spec) as client:
            return {found.name: found.partition_count for found in list_topics(client)}
    except SettingError as error:
        written = spec.kafka.get(error.name)
        if written is None:
            problems.add(spec.bootstrap_line, "bootstrap_servers", error.why)
        else:
            problems.add(written.line, f"kafka.{error.name}", error.why)
    except ClientError as error:
        problems.add(spec.bootstrap_line, "bootstrap_servers", str(error))
    return None


def check_topics(spec: PipelineSpec, there: dict[str, int], problems: Problems) -> None:
    """Report topics that do not exist and that no sink of the file creates."""
    made = {sink.topic.text for sink in missing_sinks(spec, there)}
    for source in spec.sources.values():
        if isinstance(source, TopicSource):
            _check_source(source, {*there, *made}, problems)
    for sink in spec.sinks.values():
        if isinstance(sink, TopicSink) and sink.topic.text not in {*there, *made}:
            name = sink.topic.text
            problems.add(
                sink.topic.line,
                f"sinks.{sink.name}.topic",
                f"there is no topic {name!r}{closest(name, there)}; set `partitions: N` here to"
                f" create it, or run `ottla topics create {name}`",
            )


def _check_source(source: TopicSource, there: set[str], problems: Problems) -> None:
    where = f"sources.{source.name}"
    for topic in source.topics:
        if topic.text not in there:
            hint = closest(topic.text, there) or "; `ottla topics list` shows all topics"
            message = f"there is no topic {topic.text!r}{hint}"
            problems.add(topic.line, f"{where}.topic", message)
    if source.pattern is None:
        return
    try:
        pattern = re.compile(source.pattern.text)
    except re.error as error:
        problems.add(source.pattern.line, f"{where}.pattern", f"not a regular expression: {error}")
        return
    if not any(pattern.search(name) for name in there):
        message = f"no topic matches {source.pattern.text!r}"
        problems.add(source.pattern.line, f"{where}.pattern", message)


def _ends(spec: PipelineSpec) -> list[object]:
    return [*spec.sources.values(), *spec.sinks.values()]
