"""Checks that Spark workers on other machines can run a pipeline, before it starts.

Executors write tables and keep the state of aggregations, joins and dedup. In directories that
they do not share with the driver, rows would be lost without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadError
from ottla_spark.loads.run.worker_check import ask_workers, missing_message, unseen_message
from ottla_spark.pipelines.spec.model import PipelineSpec, TableSink
from ottla_spark.pipelines.spec.problems import WHOLE_FILE, Problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_workers(spec: PipelineSpec, spark: SparkSession, problems: Problems) -> None:
    """Report workers that lack Ottla, and directories of the file that they do not see.

    The directory of an Iceberg table is known only when it is opened, and is checked then.
    """
    places = {spec.state_path: (spec.state.line, "state")}
    for sink in spec.sinks.values():
        if isinstance(sink, TableSink) and sink.place.is_path:
            places[sink.place.location] = (sink.place.written.line, f"sinks.{sink.name}.table")
    usable = [place for place, (_, where) in places.items() if not problems.about(where)]
    try:
        answers = ask_workers(spark, usable)
    except LoadError as error:
        problems.add(WHOLE_FILE, "", str(error))
        return
    for answer in answers:
        if answer.missing:
            problems.add(WHOLE_FILE, "", missing_message(answer))
        for place in answer.unseen:
            problems.add(*places[place], unseen_message(answer, place))
