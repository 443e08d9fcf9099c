"""The driver: `python -m tests.harness.topic_stream SPEC`, until SIGTERM.

A query that fails is started again in the same session. If Java has ended, so does the driver.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

import ottla_spark
from tests.harness.topic_stream.spec import StreamSpec

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

PIECE = 20
"""So many rows go from Spark to the sink at once, so that a task has many moments."""
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(PIECE),
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.efficiency.enabled": "false",
    # Executors are killed more often than Spark allows for by default.
    "spark.task.maxFailures": "20",
    "spark.deploy.maxExecutorRetries": "-1",
}


def session(spec: StreamSpec) -> SparkSession:
    conf = SETTINGS | {
        "spark.eventLog.dir": f"file://{spec.events}",
        "spark.sql.shuffle.partitions": str(spec.tasks),
    }
    return ottla_spark.session(spec.master, app_name="topic-stream", conf=conf)


def copied(spark: SparkSession, spec: StreamSpec) -> DataFrame:
    """Return the rows to write: the keys and values of the input."""
    rows = ottla_spark.read_stream(
        spark,
        spec.source,
        spec.servers,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(spec.a_batch),
        minPartitions=str(spec.tasks),
        groupId=spec.group,
    ).select("key", "value")
    if spec.shuffled:
        rows = rows.repartition("key")
    return rows.mapInArrow(slow_down(spec.slow_s), rows.schema) if spec.slow_s else rows


def slow_down(
    slow_s: float,
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Return a function that makes the first attempt of some tasks slow, in their middle."""

    def pass_on(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        is_slow = context.attemptNumber() == 0 and random.Random().random() < 0.25
        for number, batch in enumerate(batches):
            yield batch
            if is_slow and number == 1:
                time.sleep(slow_s)

    return pass_on


def start(spark: SparkSession, spec: StreamSpec) -> StreamingQuery:
    writer = copied(spark, spec).writeStream.format("ottla").trigger(processingTime="0 seconds")
    options = {
        "kafka.bootstrap.servers": spec.servers,
        "topic": spec.target,
        "checkpointLocation": spec.checkpoint,
        "kafka.batch.size": "1000",  # so that a task sends many requests
    }
    return writer.options(**options).start()


def main() -> None:
    spec = StreamSpec.from_json(sys.argv[1])
    spark = session(spec)
    while True:
        try:
            start(spark, spec).awaitTermination()
        except StreamingQueryException as error:
            print(f"the query failed: {error}", flush=True)


if __name__ == "__main__":
    main()
