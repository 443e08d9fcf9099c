"""Writes the batches of a stream into a table, each exactly once.

After a crash Spark repeats a batch with the same number and the same rows. The table commits the
rows and the batch's number together, and is asked for the last number first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadError, RolledBack
from ottla_spark.loads.options.partition_by import PartitionBy
from ottla_spark.loads.run.worker_check import check_workers
from ottla_spark.loads.state.checkpoint import Checkpoint
from ottla_spark.loads.state.storage import HadoopStorage
from ottla_spark.loads.targets.table_check import check_batch, check_files, check_table
from ottla_spark.loads.targets.table_writer import DELETED, RECORDS, Batch
from ottla_spark.pipelines.spec.model import PipelineSpec, TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_LIMIT = 0


class TableBatches:
    """Spark calls it with each batch of the sink's query."""

    def __init__(self, spec: PipelineSpec, sink: TableSink, session: SparkSession) -> None:
        place = sink.place
        self._table = place.target.open(
            session,
            place.location,
            spec.group_of(sink.name),
            catalog=place.catalog(spec.catalogs),
        )
        self._has_path = place.is_path
        self._checkpoint = Checkpoint(HadoopStorage(session), spec.checkpoint_of(sink.name))
        self._upsert = [column.text for column in sink.upsert]
        self._partitions = [PartitionBy(column.text) for column in sink.partition_by]

    def prepare(self, rows: DataFrame) -> None:
        """Create the table; raise LoadError if the existing one cannot take these rows.

        Raise LoadError too if the table no longer has rows of earlier runs.
        """
        self.check_files()
        self._table.prepare(rows.schema, self._partitions, widen=False)
        if not self._has_path:
            check_workers(rows.sparkSession, [self._table.data_directory])

    def check_files(self) -> None:
        """Raise LoadError if the table no longer has rows or files of earlier runs."""
        with self._no_reset():
            check_table(self._checkpoint, self._table)
            check_files(self._table)

    @contextmanager
    def _no_reset(self) -> Iterator[None]:
        """Say what to do about missing rows: pipelines have no --reset."""
        try:
            yield
        except RolledBack as error:
            raise LoadError(
                f"{error.what}. Continuing would leave these rows out. Bring the table back, or"
                f" start the sink over: delete its table and {self._checkpoint.path}"
            ) from None

    def __call__(self, rows: DataFrame, number: int) -> None:
        query_id = self._checkpoint.query_id()
        assert query_id is not None, "Spark names a checkpoint before its first batch"
        batch = Batch(query_id, number)
        with self._no_reset():
            if check_batch(batch, self._table):
                return
        self._table.clean(batch)
        self._write(rows, batch)

    def _write(self, rows: DataFrame, batch: Batch) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        measures = Observation(f"pipeline-{batch.number}")
        seen = rows.observe(measures, f.count(f.lit(1)).alias(RECORDS))
        if self._upsert:
            marked = seen.withColumn(DELETED, f.lit(False))
            self._table.upsert(batch, marked, measures, self._upsert)
        else:
            self._table.add(batch, seen, measures, NO_LIMIT)
