"""Runs all queries of a pipeline: once, on a schedule, or until told to stop.

One query that fails ends the run, because the others would go on without saying so. Whatever
ends it, every query is stopped before this returns; what a batch had not finished is done
again from its checkpoint by the next run. The one failure that is tried again, a few times, is
a Python process that did not start in time: it says nothing about the pipeline.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla_spark.loads.errors import LoadError
from ottla_spark.pipelines.check.pipeline_check import Checked
from ottla_spark.pipelines.check.topic_check import make_topics
from ottla_spark.pipelines.run.failures import QueryFailed, cause_of, is_slow_python
from ottla_spark.pipelines.run.progress import QueryProgress
from ottla_spark.pipelines.run.query import start_query
from ottla_spark.pipelines.run.state_lock import state_lock
from ottla_spark.pipelines.run.topic_ids import check_topic_ids
from ottla_spark.pipelines.spark_errors import quiet_spark, sentence
from ottla_spark.pipelines.spec.model import Every, Once, Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.25
MAX_RESTARTS: Final = 5
SOURCES_TIMEOUT_S: Final = 60.0
_OPENING: Final = "Initializing sources"


class View:
    """Sees a run go by; this one looks away."""

    def started(self, queries: Sequence[QueryProgress]) -> None:
        """All queries run."""

    def batch(self, query: QueryProgress) -> None:
        """A query finished a batch."""

    def polled(self, queries: Sequence[QueryProgress]) -> None:
        """A moment has passed."""

    def waiting(self, seconds: float) -> None:
        """All is done until the next scheduled run."""


def run_by_trigger(
    checked: Checked, spark: SparkSession, trigger: Trigger, view: View, stop: threading.Event
) -> list[QueryProgress]:
    """Run as the trigger says; the account of each query, of all its runs together."""
    with state_lock(checked.spec):
        make_topics(checked.spec)
        check_topic_ids(checked.spec)
        if isinstance(trigger, Every):
            return _run_every(checked, spark, trigger, view, stop)
        return _run(checked, spark, trigger, view, stop)


def _run_every(
    checked: Checked, spark: SparkSession, trigger: Every, view: View, stop: threading.Event
) -> list[QueryProgress]:
    totals: dict[str, QueryProgress] = {}
    while not stop.is_set():
        begin = time.monotonic()
        for query in _run(checked, spark, Once(), view, stop):
            _add(totals, query)
        rest = begin + trigger.interval_ms / 1000 - time.monotonic()
        if rest > 0 and not stop.is_set():
            view.waiting(rest)
            stop.wait(rest)
    return list(totals.values())


def _add(totals: dict[str, QueryProgress], query: QueryProgress) -> None:
    before = totals.get(query.sink)
    if before is not None:
        query.rows += before.rows
        query.batches += before.batches
    totals[query.sink] = query


def _run(
    checked: Checked, spark: SparkSession, trigger: Trigger, view: View, stop: threading.Event
) -> list[QueryProgress]:
    run = _Run(checked, spark, trigger, view)
    try:
        run.start()
        while not run.look() and not stop.wait(POLL_S):
            view.polled(run.queries)
    finally:
        run.stop()
    run.take_in()
    if not stop.is_set():
        run.raise_failure()
    view.polled(run.queries)
    return run.queries


class _Run:
    """The queries of one run."""

    def __init__(self, checked: Checked, spark: SparkSession, trigger: Trigger, view: View) -> None:
        self.queries: list[QueryProgress] = []
        self._checked, self._spark, self._trigger, self._view = checked, spark, trigger, view
        self._restarts: Counter[str] = Counter()

    def start(self) -> None:
        """Start the query of every sink, each when the sources of the last one are open.

        Two queries with Python sources that started at the same moment timed out waiting for
        their Python processes, every time (pyspark 4.3).
        """
        for sink in self._checked.spec.sinks:
            self.queries.append(QueryProgress(sink, self._started(sink)))
            _await_sources(self.queries[-1].query)
        self._view.started(self.queries)

    def stop(self) -> None:
        """End all queries; the batches they were at are done again by the next run."""
        for query in self.queries:
            query.query.stop()

    def look(self) -> bool:
        """Take in what happened; whether all queries have ended. QueryFailed when one failed."""
        ended = [not query.query.isActive for query in self.queries]
        self.take_in()
        failed = [query for query in self.queries if self._failed(query)]
        for query in failed:
            self._restarts[query.sink] += 1
            query.query = self._started(query.sink)
            _await_sources(query.query)
        return all(ended) and not failed

    def take_in(self) -> None:
        """Count the batches that were finished."""
        for query in self.queries:
            if query.refresh():
                self._view.batch(query)

    def raise_failure(self) -> None:
        """QueryFailed if a query failed."""
        for query in self.queries:
            error = query.query.exception()
            if error is not None:
                raise QueryFailed(f"sinks.{query.sink}: {cause_of(error)}")

    def _failed(self, query: QueryProgress) -> bool:
        """Whether a query failed and may be started anew; QueryFailed when it may not.

        Spark gives a new Python process ten seconds to start, which a busy machine may exceed.
        """
        error = query.query.exception()
        if error is None:
            return False
        if is_slow_python(error) and self._restarts[query.sink] < MAX_RESTARTS:
            return True
        raise QueryFailed(f"sinks.{query.sink}: {cause_of(error)}")

    def _started(self, name: str) -> StreamingQuery:
        from pyspark.errors import PySparkException

        sink = self._checked.spec.sinks[name]
        try:
            with quiet_spark():
                return start_query(self._checked, self._spark, sink, self._trigger)
        except PySparkException as error:
            raise QueryFailed(f"sinks.{name}: {sentence(error)}") from error
        except LoadError as error:
            raise QueryFailed(f"sinks.{name}: {error}") from error


def _await_sources(query: StreamingQuery) -> None:
    """Wait, within bounds, until a query has opened its sources or has ended."""
    deadline = time.monotonic() + SOURCES_TIMEOUT_S
    while query.isActive and query.status["message"] == _OPENING and time.monotonic() < deadline:
        time.sleep(POLL_S / 5)
