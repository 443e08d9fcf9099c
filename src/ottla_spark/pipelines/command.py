"""Implements `ottla pipeline`: checks, draws and runs a file, and prints the outcome.

Exit codes: 0 for success, 1 for problems of the file or a failed query, 130 if a run that ends
by itself was interrupted.
"""

from __future__ import annotations

import json as json_text
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError
from ottla_spark.java import NoSpark
from ottla_spark.pipelines.api import Pipeline, check_file
from ottla_spark.pipelines.check.pipeline_check import Checked
from ottla_spark.pipelines.run.failures import QueryFailed
from ottla_spark.pipelines.run.progress import QueryProgress
from ottla_spark.pipelines.show.picture import as_json
from ottla_spark.pipelines.show.views import (
    JsonView,
    LineView,
    LiveView,
    print_picture,
    progress_json,
    summary_row,
    table_of,
)
from ottla_spark.pipelines.spec.model import Once, Trigger
from ottla_spark.pipelines.spec.pipeline_file import read_file
from ottla_spark.pipelines.spec.problems import Problem, Problems
from ottla_spark.session import session
from ottla_spark.spark_log import UnexpectedError, message_of, spark_log
from ottla_spark.stop_signals import stop_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130


@dataclass(frozen=True)
class Target:
    """A pipeline file, and the options of the command line that override it.

    `tell` prints a message for people.
    """

    file: str
    master: str
    bootstrap_servers: str | None
    state: str | None
    conf: Mapping[str, str]
    json: bool
    tell: Callable[[str], None]
    verbose: bool = False

    def check(
        self, spark: Callable[[], SparkSession], before_spark: Callable[[Problems], None]
    ) -> tuple[Checked | None, Problems]:
        """Check the file. `before_spark` gets the problems that are found before Spark starts."""
        return check_file(
            self.file,
            spark,
            bootstrap_servers=self.bootstrap_servers,
            state=self.state,
            before_spark=before_spark,
        )


class ProblemReport:
    """Prints the problems of a file, each once: some of them before Spark starts."""

    def __init__(self, file: str, tell: Callable[[str], None]) -> None:
        self._file = file
        self._tell = tell
        self._printed: set[Problem] = set()

    @property
    def has_printed(self) -> bool:
        """True if a problem was printed."""
        return bool(self._printed)

    def print_early(self, problems: Problems) -> None:
        """Print the problems that are known before Spark starts, which may take a while."""
        self._print(problems)
        if len(problems):
            self._tell("ottla: Spark checks the rest ...")

    def print_all(self, problems: Problems) -> None:
        """Print the problems that were not printed yet, and how many there are in all."""
        self._print(problems)
        if len(problems) > 1:
            self._tell(f"ottla: {len(problems)} problems")

    def _print(self, problems: Problems) -> None:
        for problem in problems:
            if problem not in self._printed:
                self._printed.add(problem)
                self._tell(problem.text(self._file))


@dataclass(frozen=True)
class Running:
    """A command that runs: `stop` is set by Ctrl-C or SIGTERM, `spark` returns the session."""

    stop: threading.Event
    spark: Callable[[], SparkSession]


def _with_spark(target: Target, command: Callable[[Running], int]) -> int:
    """Run a command; print one message if it fails."""
    try:
        with (
            spark_log(QueryFailed, ClientError, verbose=target.verbose) as log,
            stop_on_signals() as stop,
        ):
            name = Path(target.file).stem
            return command(
                Running(
                    stop,
                    lambda: session(
                        target.master, app_name=name, conf=target.conf, log=log, stop=stop
                    ),
                )
            )
    except (QueryFailed, ClientError, NoSpark, UnexpectedError) as error:
        for line in message_of(error).splitlines():
            target.tell(f"ottla: {line}")
        return FAILED


def check(target: Target) -> int:
    """Print all problems of a file; return the exit code."""
    return _with_spark(target, partial(_check, target))


def plan(target: Target) -> int:
    """Draw a file as far as it can be understood, and print its problems."""
    return _with_spark(target, partial(_plan, target))


def run(target: Target, trigger: Trigger | None) -> int:
    """Check a file and run it; return the exit code."""
    return _with_spark(target, partial(_run, target, trigger))


def _check(target: Target, running: Running) -> int:
    report = ProblemReport(target.file, target.tell)
    early = _silent if target.json else report.print_early
    checked, problems = target.check(running.spark, early)
    if running.stop.is_set():
        return INTERRUPTED
    if target.json:
        print(json_text.dumps(problems_json(target, problems), indent=2))
    elif len(problems):
        report.print_all(problems)
    elif checked is not None:
        spec = checked.spec
        parts = {"source": len(spec.sources), "step": len(spec.steps), "sink": len(spec.sinks)}
        counts = [f"{count} {part}{'' if count == 1 else 's'}" for part, count in parts.items()]
        print(f"{target.file} has no problems: {', '.join(counts)}")
    return FAILED if len(problems) else OK


def _plan(target: Target, running: Running) -> int:
    checked, problems = target.check(running.spark, _silent)
    if running.stop.is_set():
        return INTERRUPTED
    if checked is not None and target.json:
        picture = as_json(checked) | {"problems": problems_json(target, problems)["problems"]}
        print(json_text.dumps(picture, indent=2))
    elif checked is not None:
        print_picture(checked)
    ProblemReport(target.file, target.tell).print_all(problems)
    return FAILED if len(problems) else OK


def _run(target: Target, trigger: Trigger | None, running: Running) -> int:
    report = ProblemReport(target.file, target.tell)
    try:
        checked, problems = target.check(running.spark, report.print_early)
    except KeyboardInterrupt:  # Spark has not started
        if not running.stop.is_set():
            raise
        return FAILED if report.has_printed else _stopped_early(target, trigger)
    if checked is None or len(problems):
        report.print_all(problems)
        return FAILED
    if running.stop.is_set():
        return _stopped_early(target, trigger)
    wanted = checked.spec.trigger if trigger is None else trigger
    view = JsonView() if target.json else LiveView() if sys.stdout.isatty() else LineView()
    try:
        queries = Pipeline(checked, running.spark()).run_by(wanted, view, running.stop)
    finally:
        view.close()
    _print_summary(queries, target.json)
    return _stopped(wanted) if running.stop.is_set() else OK


def _stopped_early(target: Target, trigger: Trigger | None) -> int:
    """Print that no query has run, and return the exit code."""
    target.tell("ottla: stopped before a query ran")
    if trigger is None:
        spec = read_file(Path(target.file).absolute(), Problems())
        trigger = Once() if spec is None else spec.trigger
    return _stopped(trigger)


def _stopped(trigger: Trigger) -> int:
    """Return the exit code of a run that was stopped: 0 unless it would have ended by itself."""
    return INTERRUPTED if isinstance(trigger, Once) else OK


def problems_json(target: Target, problems: Problems) -> dict[str, object]:
    """Return all problems as JSON."""
    return {"file": target.file, "problems": [problem._asdict() for problem in problems]}


def _silent(problems: Problems) -> None:
    """Print nothing yet."""


def _print_summary(queries: list[QueryProgress], json: bool) -> None:
    if json:
        report = [progress_json(query) for query in queries]
        print(json_text.dumps({"event": "summary", "queries": report}), flush=True)
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(table_of(queries))
    else:
        for query in queries:
            _, batch, read, _, lag, state = summary_row(query)
            told = f"{read} records read, last batch {batch}, lag {lag}, state rows {state}"
            print(f"{query.sink}: {told}")
