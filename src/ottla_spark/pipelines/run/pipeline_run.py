"""Runs all queries of a pipeline: once, on a schedule, or until stopped.

If one query fails, the run ends, because the failure could go unnoticed otherwise. All queries are
stopped before this returns. The next run repeats unfinished batches from the checkpoints. Only one
failure is retried, a few times: a Python process that did not start in time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla_spark.loads.errors import LoadError
from ottla_spark.pipelines.check.pipeline_check import Checked
from ottla_spark.pipelines.cluster import create_sink_topics
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
_STARTING: Final = "Initializing sources"


class View:
    """Receives the progress of a run. This one ignores it; subclasses show it."""

    def started(self, queries: Sequence[QueryProgress]) -> None:
        """Show that all queries have started."""

    def batch(self, query: QueryProgress) -> None:
        """Show that a query has finished a batch."""

    def polled(self, queries: Sequence[QueryProgress]) -> None:
        """Show how far the queries are, several times a second."""

    def waiting(self, seconds: float) -> None:
        """Show how many seconds it is to the next scheduled run."""


def run_by_trigger(
    checked: Checked, spark: SparkSession, trigger: Trigger, view: View, stop: threading.Event
) -> list[QueryProgress]:
    """Run as the trigger says; return the progress of each query over all its runs."""
    with state_lock(checked.spec):
        create_sink_topics(checked.spec)
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
        run.start(stop)
        while not run.poll(stop) and not stop.wait(POLL_S):
            view.polled(run.queries)
    finally:
        run.stop()
    run.refresh()
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

    def start(self, stop: threading.Event) -> None:
        """Start the queries of all sinks, one after the other, until `stop` is set.

        With pyspark 4.3, two queries with Python sources that start at the same moment always
        time out waiting for their Python processes.
        """
        for sink in self._checked.spec.sinks:
            if stop.is_set():
                return
            self.queries.append(QueryProgress(sink, self._started(sink)))
            _await_sources(self.queries[-1].query, stop)
        self._view.started(self.queries)

    def stop(self) -> None:
        """Stop all queries. The next run repeats their unfinished batches."""
        for query in self.queries:
            query.query.stop()

    def poll(self, stop: threading.Event) -> bool:
        """Update the progress; return whether all queries have ended. Raise QueryFailed."""
        ended = [not query.query.isActive for query in self.queries]
        self.refresh()
        failed = [query for query in self.queries if self._failed(query)]
        for query in failed:
            self._restarts[query.sink] += 1
            query.query = self._started(query.sink)
            _await_sources(query.query, stop)
        return all(ended) and not failed

    def refresh(self) -> None:
        """Count the finished batches."""
        for query in self.queries:
            if query.refresh():
                self._view.batch(query)

    def raise_failure(self) -> None:
        """Raise QueryFailed if a query failed."""
        for query in self.queries:
            error = query.query.exception()
            if error is not None:
                raise QueryFailed(f"sinks.{query.sink}: {cause_of(error)}") from error

    def _failed(self, query: QueryProgress) -> bool:
        """Return whether a failed query may be restarted; raise QueryFailed if it may not.

        Spark gives a new Python process ten seconds to start. A busy machine may need longer.
        """
        error = query.query.exception()
        if error is None:
            return False
        if is_slow_python(error) and self._restarts[query.sink] < MAX_RESTARTS:
            return True
        raise QueryFailed(f"sinks.{query.sink}: {cause_of(error)}") from error

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


def _await_sources(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait, with a timeout, until a query has initialized its sources, or has ended."""
    deadline = time.monotonic() + SOURCES_TIMEOUT_S
    while query.isActive and query.status["message"] == _STARTING and time.monotonic() < deadline:
        if stop.wait(POLL_S / 5):
            return
