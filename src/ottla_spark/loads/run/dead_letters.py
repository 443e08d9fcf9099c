"""Records that did not fit: into a table, exactly once, or to a topic, at least once.

Each comes with why, and with everything needed to find or to send it again: topic, partition,
offset, timestamp, key and value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ottla_spark.loads.formats.format import REASON
from ottla_spark.loads.targets.parquet import ParquetTable
from ottla_spark.loads.targets.table_writer import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
HEADER_PREFIX = "ottla."


class DeadLetterPlace(Protocol):
    """Takes the records of a batch that did not fit."""

    name: str

    def holds(self, batch: Batch) -> bool:
        """Whether the records of this batch are there already, for certain."""

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Put records there; they have the columns of the source and REASON."""

    def clean(self, batch: Batch) -> int:
        """Remove what killed attempts at this batch left behind; how much it was."""


class DeadLetterTable:
    """A Parquet table of its own."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.name = path
        self._table = ParquetTable(spark, path)

    def holds(self, batch: Batch) -> bool:
        """The table's log knows its batches."""
        last = self._table.last_batch(batch.query_id)
        return last is not None and last >= batch.number

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Add rows with Spark's file sink."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._table.prepare(misfits.schema, (), widen=True)
        rows = misfits.select(*COLUMNS, F.col(REASON).alias("reason"))
        self._table.add(batch, rows, Observation(), 0)

    def clean(self, batch: Batch) -> int:
        """Remove files of attempts that were killed."""
        return self._table.clean(batch)


class DeadLetterTopic:
    """Another topic: key and value as they were, the rest in headers."""

    def __init__(self, topic: str, client: Mapping[str, str]) -> None:
        self.name = f"topic {topic}"
        self._topic = topic
        self._client = dict(client)

    def holds(self, batch: Batch) -> bool:
        """Never for certain: a topic does not tell."""
        return False

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Write messages with the sink of the data source."""
        from pyspark.sql import functions as F

        told = {"reason": F.col(REASON)} | {name: F.col(name) for name in COLUMNS[:4]}
        headers = [
            F.struct(
                F.lit(HEADER_PREFIX + name).alias("key"),
                column.cast("string").cast("binary").alias("value"),
            )
            for name, column in told.items()
        ]
        messages = misfits.select("key", "value", F.array(*headers).alias("headers"))
        writer = messages.write.format("ottla").mode("append").option("topic", self._topic)
        writer.options(**{f"kafka.{name}": text for name, text in self._client.items()}).save()

    def clean(self, batch: Batch) -> int:
        """Nothing is left behind."""
        return 0
