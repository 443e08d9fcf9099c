"""The brokers of a pipeline: a client for them, and the topics that sinks create."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.cluster import Client
from ottla.client.settings import client_settings
from ottla.client.topics.topics import create_topics, list_topics
from ottla_spark.pipelines.spec.model import PipelineSpec, TopicSink

ANSWER_TIMEOUT_MS = 15_000


def connect(spec: PipelineSpec) -> Client:
    """Return a client of the pipeline's brokers; raise SettingError for wrong settings."""
    properties = {name: value.text for name, value in spec.kafka.items()}
    properties.setdefault("request.timeout.ms", str(ANSWER_TIMEOUT_MS))
    return client_settings({**properties, "bootstrap.servers": spec.bootstrap_servers}).connect()


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
