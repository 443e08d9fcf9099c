"""Builds the DataFrames of sources and steps.

Each one is registered as a temporary view with its name, so that SQL steps can read it. The views
live in a session of the pipeline, so other sessions do not see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla_spark.pipelines.frames.functions import Function
from ottla_spark.pipelines.frames.source_frames import SourceFrames, with_watermark
from ottla_spark.pipelines.spec.graph import Graph
from ottla_spark.pipelines.spec.model import DedupStep, PythonStep, SqlStep, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WATERMARK_MARK = "spark.watermarkDelayMs"


class NotAFrame(Exception):
    """A step is not a query, or its function did not return a DataFrame."""


class Frames:
    """Builds each DataFrame once, when it is needed."""

    def __init__(
        self,
        sources: SourceFrames,
        graph: Graph,
        functions: dict[str, Function],
        *,
        shown_as: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        """Build no frame yet. With `shown_as`, other steps read `shown_as(frame)` instead."""
        self._sources = sources
        self._graph = graph
        self._functions = functions
        self._shown_as = shown_as
        self._built: dict[str, DataFrame] = {}

    def frame(self, name: str) -> DataFrame:
        """Return the rows of a source or step; build what it needs first."""
        for needed in self._graph.order(name):
            if needed not in self._built:
                self.build(needed)
        return self._built[name]

    def build(self, name: str) -> DataFrame:
        """Build the rows of one source or step whose inputs are built."""
        relation = self._graph.relation(name)
        if isinstance(relation, SqlStep | PythonStep | DedupStep):
            rows = with_watermark(self._step(relation), relation.watermark)
        else:
            rows = self._sources.open(relation)
        self._built[name] = rows if self._shown_as is None else self._shown_as(rows)
        self._built[name].createOrReplaceTempView(name)
        return rows

    def _step(self, step: Step) -> DataFrame:
        if isinstance(step, SqlStep):
            return self._sources.session.sql(step.sql.text)
        inputs = [self._built[name] for name in self._graph.inputs(step.name)]
        if isinstance(step, DedupStep):
            return _dedup(inputs[0], step)
        rows = self._functions[step.name](*inputs, **step.arguments)
        from pyspark.sql import DataFrame

        if not isinstance(rows, DataFrame):
            raise NotAFrame(f"{step.function.text} returned {type(rows).__name__}, not a DataFrame")
        return rows


def own_session(session: SparkSession) -> SparkSession:
    """Return a session with the same settings, functions and catalog, but separate views."""
    from pyspark.sql import SparkSession

    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())


def has_watermark(rows: DataFrame) -> bool:
    """Return whether a column of these rows has a watermark."""
    return any(WATERMARK_MARK in field.metadata for field in rows.schema.fields)


def _dedup(rows: DataFrame, step: DedupStep) -> DataFrame:
    columns = [column.text for column in step.columns]
    if rows.isStreaming and has_watermark(rows):
        return rows.dropDuplicatesWithinWatermark(columns)
    return rows.dropDuplicates(columns)
