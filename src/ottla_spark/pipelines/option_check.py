"""Asks the data source whether it takes the options of topic sources and sinks."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_spark.pipelines.document import Scalar
from ottla_spark.pipelines.model import PipelineSpec, TopicSource
from ottla_spark.pipelines.opening import source_options
from ottla_spark.pipelines.problems import Problems, closest
from pyspark_ottla.kafka_options import PREFIX
from pyspark_ottla.option_values import OptionError
from pyspark_ottla.options import KNOWN, stream_options


def check_options(spec: PipelineSpec, problems: Problems) -> None:
    """Note options that the data source refuses, in the line of the one that is wrong."""
    for source in spec.sources.values():
        if isinstance(source, TopicSource):
            where = f"sources.{source.name}"
            if _refuse_unknown(source.options, KNOWN, where, problems):
                continue
            try:
                stream_options(source_options(spec, source, spec.group_of("check")))
            except OptionError as error:
                _blame(spec, source.options, where, source.line, str(error), problems)


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
