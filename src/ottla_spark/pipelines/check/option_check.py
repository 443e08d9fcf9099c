"""Asks the data source whether it takes the options of topic sources and sinks."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.admin.settings import CLIENT_PROPERTIES
from ottla_spark.pipelines.frames.topic_options import sink_options, source_options
from ottla_spark.pipelines.spec.model import PipelineSpec, TopicSink, TopicSource
from ottla_spark.pipelines.spec.problems import Problems, closest
from ottla_spark.pipelines.spec.yaml_tree import Scalar
from pyspark_ottla.kafka_options import PREFIX
from pyspark_ottla.option_values import OptionError
from pyspark_ottla.options import KNOWN, stream_options
from pyspark_ottla.sink_options import sink_settings


def check_options(spec: PipelineSpec, problems: Problems) -> None:
    """Note options that the data source refuses, in the line of the one that is wrong."""
    if _refuse_unknown_properties(spec, problems):
        return
    for source in spec.sources.values():
        where = f"sources.{source.name}"
        if isinstance(source, TopicSource) and not _refuse_unknown(
            source.options, KNOWN, where, problems
        ):
            try:
                stream_options(source_options(spec, source, spec.group_of("check")))
            except OptionError as error:
                _blame(spec, source.options, where, source.line, str(error), problems)
    for sink in spec.sinks.values():
        where = f"sinks.{sink.name}"
        if isinstance(sink, TopicSink) and not _refuse_unknown(sink.options, (), where, problems):
            try:
                sink_settings(sink_options(spec, sink))
            except OptionError as error:
                _blame(spec, sink.options, where, sink.line, str(error), problems)


def _refuse_unknown_properties(spec: PipelineSpec, problems: Problems) -> bool:
    """What is true of every client stands at the top; the rest belongs to a source or a sink."""
    unknown = [name for name in spec.kafka if name not in CLIENT_PROPERTIES]
    for name in unknown:
        hint = closest(name, CLIENT_PROPERTIES) or (
            f"; what only consumers or only producers have goes to the options of a source or"
            f" a sink, as `kafka.{name}`"
        )
        message = f"is no property that all clients have{hint}"
        problems.add(spec.kafka[name].line, f"kafka.{name}", message)
    return bool(unknown)


def _refuse_unknown(
    options: dict[str, Scalar], known: Iterable[str], where: str, problems: Problems
) -> bool:
    """Spark leaves options that mean nothing to it alone; here they are mistakes."""
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


def _blame(
    spec: PipelineSpec,
    options: dict[str, Scalar],
    where: str,
    line: int,
    message: str,
    problems: Problems,
) -> None:
    """The option is the one that the message names."""
    written = {f"{where}.options.{name}": (name, value) for name, value in options.items()}
    written |= {f"kafka.{name}": (name, value) for name, value in spec.kafka.items()}
    for path, (name, value) in written.items():
        if name.lower() in message.lower():
            problems.add(value.line, path, message)
            return
    problems.add(line, where, message)
