"""Checks that the topics of a pipeline exist, and creates the topics of sinks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.admin.client import Client
from ottla.admin.errors import AdminError
from ottla.admin.settings import SettingError, client_settings
from ottla.admin.topics import create_topics, list_topics
from ottla_spark.pipelines.spec.model import PipelineSpec, TopicSink, TopicSource
from ottla_spark.pipelines.spec.problems import Problems, closest

ANSWER_TIMEOUT_MS = 15_000


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
    except AdminError as error:
        problems.add(spec.bootstrap_line, "bootstrap_servers", str(error))
    return None


def connect(spec: PipelineSpec) -> Client:
    """Return a client of the pipeline's brokers; raise SettingError for wrong settings."""
    properties = {name: value.text for name, value in spec.kafka.items()}
    properties.setdefault("request.timeout.ms", str(ANSWER_TIMEOUT_MS))
    return client_settings({**properties, "bootstrap.servers": spec.bootstrap_servers}).connect()


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


def missing_sinks(spec: PipelineSpec, there: Iterable[str]) -> list[TopicSink]:
    """Return the sinks whose topics `run` creates."""
    return [
        sink
        for sink in spec.sinks.values()
        if isinstance(sink, TopicSink) and sink.partitions and sink.topic.text not in there
    ]


def create_sink_topics(spec: PipelineSpec) -> list[str]:
    """Create the missing topics of sinks with `partitions`; return their names."""
    if not any(isinstance(sink, TopicSink) and sink.partitions for sink in spec.sinks.values()):
        return []
    with connect(spec) as client:
        there = {found.name for found in list_topics(client)}
        wanted = {sink.topic.text: sink.partitions for sink in missing_sinks(spec, there)}
        for name, partitions in wanted.items():
            for outcome in create_topics(client, [name], partitions=partitions or 1):
                if outcome.error is not None:
                    raise outcome.error
    return list(wanted)


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
