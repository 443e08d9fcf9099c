"""Has Spark analyse a pipeline without starting anything: columns, SQL, state, output modes.

Each relation is built twice over stand-ins for the topics. Once with everything it needs, as
it will run, for its schema and for what Spark allows of the whole. Once alone, over leaves
with the schemas of its inputs, so that state is blamed on the step that makes it.
"""

from __future__ import annotations

import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.decoding import encode
from ottla_spark.pipelines.frames import Frames, NotAFrame, own_session
from ottla_spark.pipelines.functions import Function
from ottla_spark.pipelines.graph import Graph, Relation
from ottla_spark.pipelines.model import (
    OUTPUT_MODES,
    DedupStep,
    PipelineSpec,
    PythonStep,
    Sink,
    SqlStep,
    TableSink,
    TopicSink,
)
from ottla_spark.pipelines.opening import BadSchema, Opening
from ottla_spark.pipelines.problems import Problems, closest, listed
from ottla_spark.pipelines.spark_words import index_in, plain_text, quiet_spark, sentence
from ottla_spark.pipelines.state_check import check_output_mode, unbounded_state
from ottla_spark.pipelines.tables import UnreadableTable

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RAW_COLUMNS: Final = ("key", "value", "headers", "topic", "partition")


@dataclass(frozen=True)
class Analysis:
    """The schemas of relations and of what sinks write, of those that could be analysed."""

    relations: dict[str, StructType] = field(default_factory=dict)
    sinks: dict[str, StructType] = field(default_factory=dict)


def analyse(
    spec: PipelineSpec,
    graph: Graph,
    functions: dict[str, Function],
    session: SparkSession,
    problems: Problems,
) -> Analysis:
    """Note everything that Spark refuses; what depends on something refused is left out."""
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
        opening = Opening(spec, self._session, group="", empty_directory=empty)
        self._whole = Frames(opening, graph, functions)
        apart = Opening(spec, own_session(session), group="", empty_directory=empty)
        self._alone = Frames(apart, graph, functions, shown_as=self._leaf)

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
                self._refuse_commands(relation)
            return self._whole.build(relation.name)
        except PySparkException as error:
            self._problems.add(*self._blame(relation, where, error))
        except (BadSchema, NotAFrame, UnreadableTable) as error:
            self._problems.add(_line(relation), where, str(error))
        except Exception as error:
            if not isinstance(relation, PythonStep):
                raise
            self._problems.add(_line(relation), where, _in_function(relation, error))
        return None

    def _refuse_commands(self, step: SqlStep) -> None:
        """Commands are run when they are analysed: only a query may go on."""
        from pyspark.errors import ParseException

        parser = self._session._jsparkSession.sessionState().sqlParser()
        parser.parsePlan(step.sql.text)
        try:
            parser.parsePlan(f"SELECT * FROM ({step.sql.text.rstrip().rstrip(';')}\n)")
        except ParseException:
            raise NotAFrame("should be a query; commands that change something are not run") from (
                None
            )

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
        """Rows of the same columns and watermark that come from nowhere."""
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
                f"nothing streams into {name!r}: read a topic, or files with stream: true",
            )
            return
        self._check_columns(sink, rows, where)
        if not self._problems.about(where):
            self._check_mode(sink, rows, where)

    def _check_columns(self, sink: Sink, rows: DataFrame, where: str) -> None:
        from pyspark.errors import PySparkException

        twice = [name for name, count in Counter(map(str.lower, rows.columns)).items() if count > 1]
        if twice:
            message = f"{sink.input.text} has more than one column {listed(twice)}: rename one"
            self._problems.add(sink.input.line, f"{where}.from", message)
            return
        if isinstance(sink, TableSink):
            self._check_partitioning(sink, rows, where)
            self.result.sinks[sink.name] = rows.schema
            return
        self._check_records(sink, rows, where)
        if self._problems.about(where):
            return
        try:
            self.result.sinks[sink.name] = encode(rows, sink).schema
        except PySparkException as error:
            key = sink.key
            line = key.line_of(index_in(error, key.text)) if key else sink.line
            self._problems.add(line, f"{where}.key" if key else where, sentence(error))

    def _check_partitioning(self, sink: TableSink, rows: DataFrame, where: str) -> None:
        known = {column.lower() for column in rows.columns}
        if known and known <= {column.text.lower() for column in sink.partition_by}:
            line, message = sink.partition_by[0].line, "leaves no column for the files themselves"
            self._problems.add(line, f"{where}.partition_by", message)
        for column in sink.partition_by:
            if column.text.lower() not in known:
                hint = closest(column.text, rows.columns)
                message = f"there is no column {column.text!r}{hint}"
                self._problems.add(column.line, f"{where}.partition_by", message)

    def _check_records(self, sink: TopicSink, rows: DataFrame, where: str) -> None:
        if sink.format == "json":
            return
        columns = {column.lower() for column in rows.columns}
        if "value" not in columns:
            message = f"format {sink.format} needs a column named value; there are " + listed(
                rows.columns
            )
            self._problems.add(sink.input.line, f"{where}.from", message)
            return
        strange = columns - set(RAW_COLUMNS)
        if sink.format == "raw" and strange:
            message = f"format raw takes {listed(RAW_COLUMNS)}, not {listed(sorted(strange))}"
            self._problems.add(sink.input.line, f"{where}.from", message)

    def _check_mode(self, sink: Sink, rows: DataFrame, where: str) -> None:
        why = _why_mode_impossible(rows, sink.mode)
        if why is None:
            return
        possible = [
            mode
            for mode in OUTPUT_MODES
            if _why_mode_impossible(rows, mode) is None
            and (mode != "update" or isinstance(sink, TopicSink))
        ]
        advice = f"; possible here: {listed(possible)}" if possible else ""
        self._problems.add(sink.mode_line, f"{where}.mode", f"{why}{advice}")


def _why_mode_impossible(rows: DataFrame, mode: str) -> str | None:
    from pyspark.errors import AnalysisException

    try:
        check_output_mode(rows, mode)
    except AnalysisException as error:
        return plain_text(error.getMessage() or str(error))
    return None


def _path(relation: Relation) -> str:
    is_step = isinstance(relation, SqlStep | PythonStep | DedupStep)
    return f"{'steps' if is_step else 'sources'}.{relation.name}"


def _line(relation: Relation) -> int:
    if isinstance(relation, SqlStep):
        return relation.sql.line
    return relation.function.line if isinstance(relation, PythonStep) else relation.line


def _in_function(step: PythonStep, error: Exception, words: str = "") -> str:
    """A failure inside the function of a step, with the line of its own file."""
    place = step.function.text.rpartition(":")[0]
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == Path(place).name
    ]
    line = f" ({Path(place).name}, line {own[-1].lineno})" if own else ""
    what = words or f"{type(error).__name__}: {error}"
    return f"{step.function.text} fails: {what}{line}"
