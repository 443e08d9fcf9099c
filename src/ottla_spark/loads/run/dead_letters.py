"""Dead letters: records that do not fit, in a table (exactly once) or a topic (at least once).

Each has the reason and what is needed to find or resend it: topic, partition, offset, timestamp,
key and value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ottla_spark.loads.formats.format import REASON
from ottla_spark.loads.targets.parquet import ParquetTableWriter
from ottla_spark.loads.targets.table_writer import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
HEADER_PREFIX = "ottla."


class DeadLetterSink(Protocol):
    """Takes the records of a batch that do not fit."""

    name: str

    def holds(self, batch: Batch) -> bool:
        """Return whether the records of this batch were certainly written already."""

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Write records, which have the columns of the source and REASON."""

    def clean(self, batch: Batch) -> int:
        """Remove files that killed attempts at this batch left; return how many."""


class DeadLetterTable:
    """Dead letters in a separate Parquet table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.name = path
        self._table = ParquetTableWriter(spark, path)

    def holds(self, batch: Batch) -> bool:
        """Return whether the table's log has the batch."""
        last = self._table.last_batch(batch.query_id)
        return last is not None and last >= batch.number

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Add rows through Spark's file sink."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._table.prepare(misfits.schema, (), widen=True)
        rows = misfits.select(*COLUMNS, F.col(REASON).alias("reason"))
        self._table.add(batch, rows, Observation(), 0)

    def clean(self, batch: Batch) -> int:
        """Remove files of killed attempts."""
        return self._table.clean(batch)


class DeadLetterTopic:
    """Dead letters in a topic: the same key and value, everything else in headers."""

    def __init__(self, topic: str, client: Mapping[str, str]) -> None:
        self.name = f"topic {topic}"
        self._topic = topic
        self._client = dict(client)

    def holds(self, batch: Batch) -> bool:
        """Return False: a topic cannot tell."""
        return False

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Write records through the data source."""
        from pyspark.sql import functions as F

        columns = {"reason": F.col(REASON)} | {name: F.col(name) for name in COLUMNS[:4]}
        headers = [
            F.struct(
                F.lit(HEADER_PREFIX + name).alias("key"),
                column.cast("string").cast("binary").alias("value"),
            )
            for name, column in columns.items()
        ]
        messages = misfits.select("key", "value", F.array(*headers).alias("headers"))
        writer = messages.write.format("ottla").mode("append").option("topic", self._topic)
        writer.options(**{f"kafka.{name}": text for name, text in self._client.items()}).save()

    def clean(self, batch: Batch) -> int:
        """Return 0: killed attempts leave no files."""
        return 0
