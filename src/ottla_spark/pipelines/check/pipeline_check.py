"""Runs all checks of a pipeline before a query starts.

A problem of one part does not hide problems of others: each check leaves out only what it cannot
examine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla_spark.pipelines.check.file_system_check import check_file_systems
from ottla_spark.pipelines.check.option_check import check_options
from ottla_spark.pipelines.check.spark_analysis import Analysis, analyse
from ottla_spark.pipelines.check.topic_check import check_topics, topic_partitions
from ottla_spark.pipelines.check.worker_check import check_workers
from ottla_spark.pipelines.frames.functions import Function, FunctionError, load_function
from ottla_spark.pipelines.spec.graph import Graph, functions_of
from ottla_spark.pipelines.spec.model import FileSource, PipelineSpec, TableSink, TableSource
from ottla_spark.pipelines.spec.paths import beside, why_unreadable, why_unwritable
from ottla_spark.pipelines.spec.problems import Problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Checked:
    """A pipeline and the results of the checks."""

    spec: PipelineSpec
    graph: Graph
    functions: dict[str, Function]
    topics: dict[str, int]
    analysis: Analysis = field(default_factory=Analysis)


def check_spec(
    spec: PipelineSpec,
    session: Callable[[], SparkSession],
    problems: Problems,
    before_spark: Callable[[Problems], None],
) -> Checked:
    """Run all checks.

    `session` is called only when Spark is needed. Right before, `before_spark` gets the problems
    that were found until then, because Spark may take long to start.
    """
    graph = Graph(spec, problems)
    _check_places(spec, problems)
    _check_catalogs(spec, problems)
    check_options(spec, problems)
    topics = topic_partitions(spec, problems)
    if topics is not None:
        check_topics(spec, topics, problems)
    before_spark(problems)
    spark = session()
    check_file_systems(spec, spark, problems)
    check_workers(spec, spark, problems)
    functions = _functions(spec, problems)
    analysis = analyse(spec, graph, functions, spark, problems)
    return Checked(spec, graph, functions, topics or {}, analysis)


def _functions(spec: PipelineSpec, problems: Problems) -> dict[str, Function]:
    found = {}
    for step in functions_of(spec):
        try:
            found[step.name] = load_function(step, spec.file)
        except FunctionError as error:
            problems.add(step.function.line, f"steps.{step.name}.python", str(error))
    return found


def _check_catalogs(spec: PipelineSpec, problems: Problems) -> None:
    """Report sinks whose catalog is unknown or does not answer, and places that cannot be used."""
    for sink in spec.sinks.values():
        if not isinstance(sink, TableSink):
            continue
        place, where = sink.place, f"sinks.{sink.name}.table"
        why = place.target.why_not_at(place.location)
        why = why or place.target.why_no_catalog(place.location, place.catalog(spec.catalogs))
        if why:
            hint = "" if place.is_path else "; configure it in `catalogs` or in ~/.pyiceberg.yaml"
            problems.add(place.written.line, where, why + hint)


def _check_places(spec: PipelineSpec, problems: Problems) -> None:
    why = why_unwritable(spec.state_path)
    if why:
        problems.add(spec.state.line, "state", f"cannot be written: {why}")
    for sink in spec.sinks.values():
        if isinstance(sink, TableSink) and sink.place.is_path:
            why = why_unwritable(sink.place.location)
            if why:
                where = f"sinks.{sink.name}.table"
                problems.add(sink.place.written.line, where, f"cannot be written: {why}")
    for source in spec.sources.values():
        if isinstance(source, TableSource) and source.place.is_path:
            why = why_unreadable(source.place.location)
            if why:
                problems.add(source.place.written.line, f"sources.{source.name}.table", why)
        elif isinstance(source, FileSource):
            why = why_unreadable(beside(spec.file, source.path.text))
            if why:
                problems.add(source.path.line, f"sources.{source.name}.files", why)
