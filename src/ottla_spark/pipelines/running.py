"""Runs all queries of a pipeline: once, on a schedule, or until told to stop.

One query that fails ends the run, because the others would go on without saying so. Whatever
ends it, every query is stopped before this returns; what a batch had not finished is done
again from its checkpoint by the next run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.checking import Checked
from ottla_spark.pipelines.cluster_check import make_topics
from ottla_spark.pipelines.failures import QueryFailed, cause_of
from ottla_spark.pipelines.model import Every, Once, Sink, Trigger
from ottla_spark.pipelines.progress import QueryProgress
from ottla_spark.pipelines.runs import start_query
from ottla_spark.pipelines.spark_words import quiet_spark, sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.25


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
    make_topics(checked.spec)
    if not isinstance(trigger, Every):
        return _run(checked, spark, trigger, view, stop)
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
    queries: list[QueryProgress] = []
    try:
        for sink in checked.spec.sinks.values():
            queries.append(QueryProgress(sink.name, _started(checked, spark, sink, trigger)))
        view.started(queries)
        while not _look(queries, view) and not stop.wait(POLL_S):
            view.polled(queries)
    finally:
        for query in queries:
            query.query.stop()
    _look(queries, view)
    view.polled(queries)
    return queries


def _started(checked: Checked, spark: SparkSession, sink: Sink, trigger: Trigger) -> StreamingQuery:
    from pyspark.errors import PySparkException

    try:
        with quiet_spark():
            return start_query(checked, spark, sink, trigger)
    except PySparkException as error:
        raise QueryFailed(f"sinks.{sink.name}: {sentence(error)}") from error


def _look(queries: Sequence[QueryProgress], view: View) -> bool:
    """Take in what happened; whether all queries have ended. QueryFailed when one failed."""
    ended = [not query.query.isActive for query in queries]
    for query in queries:
        if query.refresh():
            view.batch(query)
    for query in queries:
        error = query.query.exception()
        if error is not None:
            raise QueryFailed(f"sinks.{query.sink}: {cause_of(error)}")
    return all(ended)
