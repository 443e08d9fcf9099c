"""Lets Spark analyse a pipeline without running it: columns, SQL, state, output modes.

Topics are replaced by empty streams. Each source and step is built twice. First with all its
inputs, as it will run, to get its schema and Spark's errors. Then alone, over empty inputs with
the same schemas, so that state is reported at the step that creates it.
"""

from __future__ import annotations

import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.loads.targets.target import UnreadableTable
from ottla_spark.pipelines.check.sink_check import check_sink
from ottla_spark.pipelines.check.state_check import unbounded_state
from ottla_spark.pipelines.frames.frames import Frames, NotAFrame, own_session
from ottla_spark.pipelines.frames.functions import Function
from ottla_spark.pipelines.frames.source_frames import BadSchema, SourceFrames
from ottla_spark.pipelines.spark_errors import index_in, quiet_spark, sentence
from ottla_spark.pipelines.spec.graph import Graph, Relation
from ottla_spark.pipelines.spec.model import (
    DedupStep,
    PipelineSpec,
    PythonStep,
    Sink,
    SqlStep,
)
from ottla_spark.pipelines.spec.problems import Problems

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Analysis:
    """The schemas of sources, steps and sinks; without those that could not be analysed."""

    relations: dict[str, StructType] = field(default_factory=dict)
    sinks: dict[str, StructType] = field(default_factory=dict)


def analyse(
    spec: PipelineSpec,
    graph: Graph,
    functions: dict[str, Function],
    session: SparkSession,
    problems: Problems,
) -> Analysis:
    """Report everything that Spark refuses. Skip what depends on something refused."""
    with tempfile.TemporaryDirectory(prefix="ottla-check-") as empty, quiet_spark():
        check = _Check(spec, graph, functions, session, problems, empty)
        for name in graph.order(*spec.sources, *spec.steps):
            check.relation(name)
        for sink in spec.sinks.values():
            check.sink(sink)
        return check.result


class _Check:
    def __init__(
        self,
        spec: PipelineSpec,
        graph: Graph,
        functions: dict[str, Function],
        session: SparkSession,
        problems: Problems,
        empty: str,
    ) -> None:
        self.result = Analysis()
        self._spec, self._graph, self._problems = spec, graph, problems
        self._empty = empty
        self._session = own_session(session)
        whole = SourceFrames(spec, self._session, group="", empty_directory=empty)
        self._whole = Frames(whole, graph, functions)
        alone = SourceFrames(spec, own_session(session), group="", empty_directory=empty)
        self._alone = Frames(alone, graph, functions, shown_as=self._leaf)

    def relation(self, name: str) -> None:
        relation = self._graph.relation(name)
        where = _path(relation)
        if any(needed not in self.result.relations for needed in self._graph.inputs(name)):
            return
        if self._problems.about(where):
            return
        rows = self._built(relation, where)
        if rows is None:
            return
        self.result.relations[name] = rows.schema
        alone = self._alone.build(name)
        if isinstance(relation, SqlStep | PythonStep | DedupStep) and not relation.unbounded:
            for why in unbounded_state(alone):
                self._problems.add(_line(relation), where, why)

    def _built(self, relation: Relation, where: str) -> DataFrame | None:
        from pyspark.errors import PySparkException

        try:
            if isinstance(relation, SqlStep):
                self._check_is_query(relation)
            return self._whole.build(relation.name)
        except PySparkException as error:
            self._problems.add(*self._blame(relation, where, error))
        except BadSchema as error:
            self._problems.add(error.schema.line, f"{where}.schema", str(error))
        except (NotAFrame, UnreadableTable) as error:
            self._problems.add(_line(relation), where, str(error))
        except Exception as error:
            if not isinstance(relation, PythonStep):
                raise
            self._problems.add(_line(relation), where, _in_function(relation, error))
        return None

    def _check_is_query(self, step: SqlStep) -> None:
        """Raise NotAFrame for a command. Spark would run a command when it analyses it."""
        from pyspark.errors import ParseException

        parser = self._session._jsparkSession.sessionState().sqlParser()
        parser.parsePlan(step.sql.text)
        try:
            parser.parsePlan(f"SELECT * FROM ({step.sql.text.rstrip().rstrip(';')}\n)")
        except ParseException:
            raise NotAFrame("should be a query, not a command that changes something") from None

    def _blame(
        self, relation: Relation, where: str, error: PySparkException
    ) -> tuple[int, str, str]:
        condition = error.getCondition() or ""
        words = sentence(error, self._known_names())
        if relation.watermark is not None and "EventTimeWatermark" in str(error):
            return relation.watermark.column.line, f"{where}.watermark.column", words
        if condition == "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE" and relation.watermark is not None:
            return relation.watermark.column.line, f"{where}.watermark.column", words
        if isinstance(relation, SqlStep):
            sql = relation.sql
            return sql.line_of(index_in(error, sql.text)), f"{where}.sql", words
        if isinstance(relation, PythonStep):
            return _line(relation), where, _in_function(relation, error, words)
        schema = getattr(relation, "schema", None)
        if schema is not None and condition.startswith(("PARSE_", "UNSUPPORTED_DATATYPE")):
            return schema.line_of(index_in(error, schema.text)), f"{where}.schema", words
        return _line(relation), where, words

    def _known_names(self) -> list[str]:
        return [*self._spec.sources, *self._spec.steps]

    def _leaf(self, rows: DataFrame) -> DataFrame:
        """Return empty rows with the same columns and watermark."""
        session = rows.sparkSession
        if rows.isStreaming:
            return session.readStream.schema(rows.schema).parquet(self._empty)
        return session.createDataFrame([], rows.schema)

    def sink(self, sink: Sink) -> None:
        name = self._graph.known(sink.input.text)
        where = f"sinks.{sink.name}"
        if name is None or name not in self.result.relations or self._problems.about(where):
            return
        needed = [self._graph.relation(found) for found in self._graph.order(name)]
        if any(self._problems.about(_path(relation)) for relation in needed):
            return
        rows = self._whole.frame(name)
        if not rows.isStreaming:
            self._problems.add(
                sink.input.line,
                f"{where}.from",
                f"{name!r} is not a stream: read a topic, or files with stream: true",
            )
            return
        schema = check_sink(sink, rows, self._problems)
        if schema is not None:
            self.result.sinks[sink.name] = schema


def _path(relation: Relation) -> str:
    is_step = isinstance(relation, SqlStep | PythonStep | DedupStep)
    return f"{'steps' if is_step else 'sources'}.{relation.name}"


def _line(relation: Relation) -> int:
    if isinstance(relation, SqlStep):
        return relation.sql.line
    return relation.function.line if isinstance(relation, PythonStep) else relation.line


def _in_function(step: PythonStep, error: Exception, words: str = "") -> str:
    """Return the message for an exception in a step's function, with its line."""
    place = step.function.text.rpartition(":")[0]
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == Path(place).name
    ]
    line = f" ({Path(place).name}, line {own[-1].lineno})" if own else ""
    what = words or f"{type(error).__name__}: {error}"
    return f"{step.function.text} fails: {what}{line}"
