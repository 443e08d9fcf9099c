"""Checks the options of topic sources and sinks with the data source's own parser."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.settings import CLIENT_PROPERTIES
from ottla_spark.pipelines.frames.topic_options import sink_options, source_options
from ottla_spark.pipelines.spec.model import PipelineSpec, TopicSink, TopicSource
from ottla_spark.pipelines.spec.problems import Problems, closest
from ottla_spark.pipelines.spec.yaml_tree import Scalar
from pyspark_ottla.options.kafka_options import PREFIX
from pyspark_ottla.options.option_values import OptionError
from pyspark_ottla.options.sink_options import sink_settings
from pyspark_ottla.options.source_options import KNOWN, stream_options


def check_options(spec: PipelineSpec, problems: Problems) -> None:
    """Report options that the data source refuses, with the line of the option."""
    if _check_client_properties(spec, problems):
        return
    for source in spec.sources.values():
        where = f"sources.{source.name}"
        if isinstance(source, TopicSource) and not _has_unknown(
            source.options, KNOWN, where, problems
        ):
            try:
                stream_options(source_options(spec, source, spec.group_of("check")))
            except OptionError as error:
                _report(spec, source.options, where, source.line, str(error), problems)
    for sink in spec.sinks.values():
        where = f"sinks.{sink.name}"
        if isinstance(sink, TopicSink) and not _has_unknown(sink.options, (), where, problems):
            try:
                sink_settings(sink_options(spec, sink))
            except OptionError as error:
                _report(spec, sink.options, where, sink.line, str(error), problems)


def _check_client_properties(spec: PipelineSpec, problems: Problems) -> bool:
    """Report keys of `kafka` that not all clients have; they belong to a source or a sink."""
    unknown = [name for name in spec.kafka if name not in CLIENT_PROPERTIES]
    for name in unknown:
        hint = closest(name, CLIENT_PROPERTIES) or (
            f"; put a property of consumers or producers into the options of a source or a sink,"
            f" as `kafka.{name}`"
        )
        message = f"is not a property of all clients{hint}"
        problems.add(spec.kafka[name].line, f"kafka.{name}", message)
    return bool(unknown)


def _has_unknown(
    options: dict[str, Scalar], known: Iterable[str], where: str, problems: Problems
) -> bool:
    """Report unknown options, which Spark would ignore."""
    by_case = {name.lower(): name for name in known}
    unknown = [
        name
        for name in options
        if name.lower() not in by_case and not name.lower().startswith(PREFIX)
    ]
    for name in unknown:
        hint = closest(name.lower(), by_case)
        message = f"there is no option {name!r}{hint}"
        problems.add(options[name].line, f"{where}.options.{name}", message)
    return bool(unknown)


def _report(
    spec: PipelineSpec,
    options: dict[str, Scalar],
    where: str,
    line: int,
    message: str,
    problems: Problems,
) -> None:
    """Report a problem at the option that the message names."""
    written = {f"{where}.options.{name}": (name, value) for name, value in options.items()}
    written |= {f"kafka.{name}": (name, value) for name, value in spec.kafka.items()}
    for path, (name, value) in written.items():
        if name.lower() in message.lower():
            problems.add(value.line, path, message)
            return
    problems.add(line, where, message)
