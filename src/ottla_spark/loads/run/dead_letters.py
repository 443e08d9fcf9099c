"""Dead letters: records that do not fit, in a table or a topic, exactly once.

Each has the reason and what is needed to find or resend it: topic, partition, offset, timestamp,
key and value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.client.settings import CLIENT_PROPERTIES
from ottla_spark.loads.formats.format import REASON
from ottla_spark.loads.targets.delta import DeltaTableWriter
from ottla_spark.loads.targets.parquet import ParquetTableWriter
from ottla_spark.loads.targets.table_writer import RECORDS, Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
REASON_COLUMN = "reason"
HEADER_PREFIX = "ottla."


def dead_letter_messages(misfits: DataFrame, reason: str) -> DataFrame:
    """Return messages for a topic: the same key and value, everything else in headers.

    `reason` is the column with the reason.
    """
    from pyspark.sql import functions as F

    columns = {REASON_COLUMN: F.col(reason)} | {name: F.col(name) for name in COLUMNS[:4]}
    headers = [
        F.struct(
            F.lit(HEADER_PREFIX + name).alias("key"),
            column.cast("string").cast("binary").alias("value"),
        )
        for name, column in columns.items()
    ]
    return misfits.select("key", "value", F.array(*headers).alias("headers"))


class DeadLetterSink(Protocol):
    """Takes the records of a batch that do not fit."""

    name: str

    def holds(self, batch: Batch) -> bool:
        """Return whether the records of this batch were certainly written already."""

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Write records, which have the columns of the source and REASON."""

    def clean(self, batch: Batch) -> int:
        """Remove files that killed attempts at this batch left; return how many."""

    def reset(self) -> None:
        """Delete the records of earlier loads, if they are in a table of this load."""


class DeadLetterTable:
    """Dead letters in a separate Parquet table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.name = path
        self._table = ParquetTableWriter(spark, path)

    def is_of_another(self, query_id: str | None) -> bool:
        """Return whether the table has the dead letters of another load."""
        return self._table.is_of_another(query_id)

    def holds(self, batch: Batch) -> bool:
        """Return whether the table's log has the batch."""
        last = self._table.last_batch(batch.query_id)
        return last is not None and last >= batch.number

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Add rows through Spark's file sink. Most batches of a load have no dead letters."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._table.prepare(misfits.schema, (), widen=True)
        self._table.fill_gaps(batch)
        rows = misfits.select(*COLUMNS, F.col(REASON).alias(REASON_COLUMN))
        self._table.add(batch, rows, Observation(), 0)

    def clean(self, batch: Batch) -> int:
        """Remove files of killed attempts."""
        return self._table.clean(batch)

    def reset(self) -> None:
        """Delete all rows."""
        self._table.reset()


class DeltaDeadLetters:
    """Dead letters in a Delta table, which can be in an object store."""

    def __init__(self, spark: SparkSession, path: str, topic: str) -> None:
        self.name = path
        self._table = DeltaTableWriter(spark, path, topic)

    def holds(self, batch: Batch) -> bool:
        """Return whether the table has the batch."""
        last = self._table.last_batch(batch.query_id) if self._table.exists() else None
        return last is not None and last >= batch.number

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Add rows in one commit."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        rows = misfits.select(*COLUMNS, F.col(REASON).alias(REASON_COLUMN))
        self._table.prepare(rows.schema, (), widen=True)
        measures = Observation()
        counted = rows.observe(measures, F.count(F.lit(1)).alias(RECORDS))
        self._table.add(batch, counted, measures, 0)

    def clean(self, batch: Batch) -> int:
        """Remove files of killed attempts."""
        return self._table.clean(batch)

    def reset(self) -> None:
        """Delete all rows."""
        self._table.reset()


class DeadLetterTopic:
    """Dead letters in a topic: the same key and value, everything else in headers."""

    def __init__(self, topic: str, client: Mapping[str, str]) -> None:
        self.name = f"topic {topic}"
        self._topic = topic
        self._client = {n: text for n, text in client.items() if n in CLIENT_PROPERTIES}

    def holds(self, batch: Batch) -> bool:
        """Return False: a topic cannot tell."""
        return False

    def put(self, batch: Batch, misfits: DataFrame) -> None:
        """Write records through the data source, unless an earlier run has written this batch."""
        messages = dead_letter_messages(misfits, REASON)
        writer = messages.write.format("ottla").mode("append").option("topic", self._topic)
        writer = writer.option("txnAppId", f"{batch.query_id}-dead-letters")
        writer = writer.option("txnVersion", batch.number)
        writer.options(**{f"kafka.{name}": text for name, text in self._client.items()}).save()

    def clean(self, batch: Batch) -> int:
        """Return 0: killed attempts leave no files."""
        return 0

    def reset(self) -> None:
        """Do nothing: what is in a topic stays."""
