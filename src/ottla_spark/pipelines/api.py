"""Pipelines for Python programs: `ottla_spark.pipeline(...)`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_spark.pipelines.check.pipeline_check import Checked, check_spec
from ottla_spark.pipelines.check.spark_analysis import Analysis
from ottla_spark.pipelines.run.pipeline_run import View, run_by_trigger
from ottla_spark.pipelines.run.progress import QueryProgress
from ottla_spark.pipelines.run.query import frames_for, start_query
from ottla_spark.pipelines.spec.model import Once, PipelineSpec, Trigger
from ottla_spark.pipelines.spec.pipeline_file import read_file
from ottla_spark.pipelines.spec.problems import PipelineError, Problems
from ottla_spark.pipelines.spec.trigger import choose_trigger
from ottla_spark.session import LOCAL, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Pipeline:
    """A pipeline without problems. Create it with `pipeline`."""

    def __init__(self, checked: Checked, spark: SparkSession) -> None:
        self._checked = checked
        self._spark = spark

    @property
    def spec(self) -> PipelineSpec:
        """The content of the file."""
        return self._checked.spec

    @property
    def analysis(self) -> Analysis:
        """The schemas of all sources, steps and sinks."""
        return self._checked.analysis

    @property
    def checked(self) -> Checked:
        """The result of the check."""
        return self._checked

    def frame(self, name: str) -> DataFrame:
        """Return the DataFrame of a source or step. It streams if any of its sources streams.

        A query over it commits its offsets to the group `<pipeline>.<name>`.
        """
        known = self._checked.graph.known(name)
        if known is None:
            raise KeyError(f"{self.spec.file} has no source or step {name!r}")
        return frames_for(self._checked, self._spark, name).frame(known)

    def start(self, sink: str, *, once: bool = False) -> StreamingQuery:
        """Start the query of one sink, with the file's trigger or, with `once`, once."""
        if sink not in self.spec.sinks:
            raise KeyError(f"{self.spec.file} has no sink {sink!r}")
        wanted = Once() if once else self.spec.trigger
        return start_query(self._checked, self._spark, self.spec.sinks[sink], wanted)

    def run(
        self,
        *,
        once: bool = False,
        every: str | None = None,
        always: bool = False,
        view: View | None = None,
        stop: threading.Event | None = None,
    ) -> list[QueryProgress]:
        """Run all queries until they are done or `stop` is set; raise QueryFailed if one fails.

        `once`, `every` or `always` replaces the file's trigger.
        """
        wanted = choose_trigger(once, every, always) or self.spec.trigger
        return self.run_by(wanted, view or View(), stop or threading.Event())

    def run_by(self, trigger: Trigger, view: View, stop: threading.Event) -> list[QueryProgress]:
        """Run all queries with this trigger, as `run` does."""
        return run_by_trigger(self._checked, self._spark, trigger, view, stop)


def check_file(
    file: str | PathLike[str],
    spark: Callable[[], SparkSession],
    *,
    bootstrap_servers: str | None = None,
    state: str | None = None,
    before_spark: Callable[[Problems], None] = lambda problems: None,
) -> tuple[Checked | None, Problems]:
    """Check a file. Return the result and all problems; the result is None if unreadable.

    `before_spark` gets the problems that are found without Spark, before it starts.
    """
    problems = Problems()
    spec = read_file(Path(file).absolute(), problems)
    if spec is None:
        return None, problems
    if bootstrap_servers is not None:
        spec = replace(spec, bootstrap_servers=bootstrap_servers)
    if state is not None:
        spec = replace(spec, state=replace(spec.state, text=str(Path(state).absolute())))
    return check_spec(spec, spark, problems, before_spark), problems


def pipeline(
    file: str | PathLike[str],
    spark: SparkSession | None = None,
    *,
    master: str = LOCAL,
    bootstrap_servers: str | None = None,
    state: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Pipeline:
    """Check a file and return its pipeline; raise PipelineError with all problems of the file.

    It uses the given session, or starts one on `master` with the settings `conf`.
    """
    running = spark or session(master, app_name=Path(file).stem, conf=conf)
    checked, problems = check_file(
        file, lambda: running, bootstrap_servers=bootstrap_servers, state=state
    )
    if checked is None or len(problems):
        raise PipelineError(str(file), problems)
    return Pipeline(checked, running)
