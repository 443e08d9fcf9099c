"""The target `parquet:PATH`. Spark's file sink or Python workers write the files.

The sink's log (`_spark_metadata`) lists the files of the table by batch, so a batch is not added
twice. Spark reads the log. Other readers list the directory, so a load first removes files that
the log does not list.

The log numbers batches but does not name a checkpoint. A table therefore belongs to one load.
Helpers: `parquet_sink_log.py`, `parquet_compaction.py`, `parquet_worker_files.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.state.arrow_storage import ArrowStorage
from ottla_spark.loads.state.load_directory import HIDDEN
from ottla_spark.loads.state.object_store import is_object_store
from ottla_spark.loads.state.storage import HadoopStorage, local_path
from ottla_spark.loads.targets.parquet_compaction import ParquetCompaction, is_mark
from ottla_spark.loads.targets.parquet_sink_log import SinkLog
from ottla_spark.loads.targets.parquet_worker_files import ParquetWorkerFiles, worker_files
from ottla_spark.loads.targets.staged_files import WRITER_OPTIONS
from ottla_spark.loads.targets.table_writer import Added, Batch, TableWriter
from ottla_spark.loads.targets.target import Glance, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from ottla_spark.loads.options.load_options import LoadOptions
    from ottla_spark.loads.options.partition_by import PartitionBy

LOG_INTERVAL = 10
"""Spark's default: every tenth log file lists the whole table."""
COMPACTED_LOG_INTERVAL = 1
"""With compaction every log file lists the whole table: one rename replaces any of its files."""
_INTERVAL_SETTING = "spark.sql.streaming.fileSink.log.compactInterval"
INCOMING = "_incoming"
"""The directory for files of workers. Not below HIDDEN, where a topic may have any name."""
PART = "part-"
"""The start of the names of data files."""


class ParquetTarget(Target):
    """Directories of Parquet files."""

    scheme: ClassVar[str] = "parquet"
    form: ClassVar[str] = "parquet:PATH"
    takes_several_topics: ClassVar[bool] = False

    def why_not_at(self, location: str) -> str:
        """Return why the table cannot be in an object store."""
        if not is_object_store(location):
            return ""
        return (
            "Spark itself writes Parquet tables, and it has no file system for s3://. Use"
            " delta: or iceberg: there, or s3a:// with Hadoop's module"
            " (--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION)"
        )

    def why_no_upsert(self, key_columns: int) -> str:
        """Return why rows cannot be replaced."""
        return "rows in Parquet files cannot be replaced"

    def why_no_compaction(self) -> str:
        """Return nothing: the files can be rewritten."""
        return ""

    def open(
        self,
        spark: SparkSession,
        location: str,
        writer: str,
        *,
        catalog: Mapping[str, str],
        compacted: bool = False,
    ) -> ParquetTableWriter:
        """Open the table in a directory."""
        return ParquetTableWriter(spark, location, compacted=compacted)

    def glance(self, location: str, writer: str, *, catalog: Mapping[str, str]) -> Glance | None:
        """Return the directory of the table and the last batch in the sink's log."""
        if local_path(location) is None:
            return None
        storage = ArrowStorage()
        log = SinkLog(storage, location)
        listed = {storage.canonical(unquote(file.path)) for file in log.files()}
        there = {stored.uri for stored in storage.data_files(location)}
        place = location if listed <= there else ""
        return Glance(place, lambda _: log.last_batch(), has_leftovers=there > listed)

    def read(self, spark: SparkSession, location: str, catalog: Mapping[str, str]) -> DataFrame:
        """Return the rows of the files that Spark finds."""
        return spark.read.parquet(location)

    def stream_writer(
        self, rows: DataFrame, location: str, partition_by: Sequence[str]
    ) -> DataStreamWriter:
        """Return Spark's file sink."""
        writer = rows.writeStream.format("parquet").option("path", location)
        return writer.partitionBy(*partition_by) if partition_by else writer


TARGET = ParquetTarget()


class ParquetTableWriter(TableWriter):
    """The table in the directory `path`."""

    def __init__(self, spark: SparkSession, path: str, *, compacted: bool = False) -> None:
        self.data_directory = path
        self._log_interval = COMPACTED_LOG_INTERVAL if compacted else LOG_INTERVAL
        self._spark = spark
        self._partitions: list[str] = []
        self._storage = HadoopStorage(spark)
        self._log = SinkLog(self._storage, path)
        self._compaction = ParquetCompaction(spark, self._storage, self._log, path)

    def prepare(
        self, schema: StructType, partitions: Sequence[PartitionBy], *, widen: bool
    ) -> None:
        """Raise LoadUsageError if the directory has files that no load wrote."""
        self._partitions = [part.column for part in partitions]
        if self._log.last_batch() is None and self._owner() is None:
            found = self._storage.data_files(self.data_directory)
            if found:
                raise LoadUsageError(
                    f"{self.data_directory} has files that no load wrote, such as"
                    f" {found[0].uri.rpartition('/')[2]}: use an empty directory"
                )

    def widen(self, schema: StructType) -> None:
        """Do nothing: each Parquet file has its own columns (read them with mergeSchema)."""

    def last_batch(self, query_id: str) -> int | None:
        """Return the last batch in the log; raise LoadUsageError if another checkpoint wrote it."""
        last = self._log.last_batch()
        if last is not None and self._owner() not in {None, query_id}:
            raise LoadUsageError(self._other_checkpoint)
        return last

    def is_of_another(self, query_id: str | None) -> bool:
        """Return whether the table belongs to the checkpoint of another load."""
        return self._owner() not in {None, query_id}

    def missing_files(self) -> list[str]:
        """Return the files that the log lists and the directory lacks."""
        there = {stored.uri for stored in self._storage.data_files(self.data_directory)}
        listed = {self._storage.canonical(file.path) for file in self._log.files()}
        return sorted(listed - there)

    def reset(self) -> None:
        """Remove the files, then the log, then the note of the checkpoint."""
        if self._log.last_batch() is None and self._owner() is None:
            return
        for stored in self._storage.data_files(self.data_directory):
            self._storage.remove(stored.uri)
        self._log.remove()
        self._compaction.clean()
        self._storage.remove(self._owner_path)

    def add(
        self, batch: Batch, rows: DataFrame, measures: Observation, most_rows_a_file: int
    ) -> Added:
        """Pass the rows to Spark's file sink, which writes the files and then the log."""
        self._own(batch)
        plan = rows._jdf
        self._sink(most_rows_a_file).addBatch(batch.number, plan)
        fresh = self._log.added_by(batch.number)
        measured = plan.queryExecution().observedMetrics().get(measures._name)
        content = _scalars(measured.get()) if measured.isDefined() else {}
        return Added(len(fresh), sum(file.size for file in fresh), content)

    def add_files(self, batch: Batch, sizes: Mapping[str, int]) -> None:
        """Add the files that workers wrote to `incoming`, by name and size, in one commit.

        Remove all other files there. They come from failed or repeated tasks.
        """
        self._own(batch)
        for name, size in sizes.items():
            self._move_into_table(name, size)
        self._spark.conf.set(_INTERVAL_SETTING, self._log_interval)
        self._log.append(
            self._spark, batch.number, [f"{self.data_directory}/{name}" for name in sizes]
        )
        self._clear_incoming()

    def clean(self, batch: Batch) -> int:
        """Remove files that the log does not list, the marks of a compaction last."""
        del batch
        removed = self._clear_incoming()
        self._compaction.clean()
        if self._log.last_batch() is None and self._owner() is None:
            return removed
        listed = {self._storage.canonical(file.path) for file in self._log.files()}
        there = self._storage.data_files(self.data_directory)
        left = [stored.uri for stored in there if stored.uri not in listed]
        for uri in sorted(left, key=is_mark):
            self._storage.remove(uri)
        return removed + sum(not is_mark(uri) for uri in left)

    def fill_gaps(self, batch: Batch) -> None:
        """Prepare the log for a batch whose predecessors may have added nothing to the table."""
        self._owner()
        self._log.fill_gaps(batch.number, self._log_interval)

    def compact(self, target_file_size: int) -> int:
        """Merge small files, and replace the log files that list them."""
        return self._compaction.run(target_file_size)

    @property
    def incoming(self) -> str:
        """The directory for files of workers that are not part of the table yet."""
        return f"{self.data_directory}/{INCOMING}"

    def worker_files(self, options: LoadOptions) -> ParquetWorkerFiles | None:
        """Return how workers write the files of this load; None if Spark's writer does."""
        return worker_files(self._spark, options, self)

    def _move_into_table(self, name: str, size: int) -> None:
        """Move a worker's file into the table; raise LoadError if it has another size."""
        path = f"{self.incoming}/{name}"
        there = self._storage.status(path).getLen() if self._storage.exists(path) else 0
        if there != size:
            raise LoadError(
                f"the load stopped: a worker wrote {size} bytes to {path}, but {there} are there."
                " Put the table where the driver and the executors see the same files"
            )
        self._storage.move(path, f"{self.data_directory}/{name}")

    def _clear_incoming(self) -> int:
        """Remove the files of workers; return how many. No worker writes at this moment."""
        names = self._storage.children(self.incoming)
        left = [name for name in names if name.startswith(PART)]
        for name in left:
            self._storage.remove(f"{self.incoming}/{name}")
        return len(left)

    @property
    def _other_checkpoint(self) -> str:
        return (
            f"{self.data_directory} was loaded with another checkpoint: name that one with"
            " --checkpoint, use another table, or start over with --reset"
        )

    @property
    def _owner_path(self) -> str:
        return f"{self.data_directory}/{HIDDEN}/table.json"

    def _own(self, batch: Batch) -> None:
        """Write down which checkpoint the table belongs to, before its first file."""
        if self._owner() is None:
            content = {"query_id": batch.query_id, "log_interval": self._log_interval}
            self._storage.create_text(self._owner_path, json.dumps(content) + "\n")
        if self._owner() != batch.query_id:
            raise LoadUsageError(self._other_checkpoint)

    def _owner(self) -> str | None:
        """Return the id of the checkpoint that the table belongs to, and keep its log interval."""
        if not self._storage.exists(self._owner_path):
            return None
        content = json.loads(self._storage.read_text(self._owner_path))
        self._log_interval = int(content["log_interval"])
        return str(content["query_id"])

    def _sink(self, most_rows_a_file: int) -> Any:
        """Return a new sink of Spark: an old one caches log files that compaction replaces."""
        jvm: Any = self._spark._jvm
        self._spark.conf.set(_INTERVAL_SETTING, self._log_interval)
        options = {"path": self.data_directory, "maxRecordsPerFile": str(most_rows_a_file)}
        options |= WRITER_OPTIONS
        return jvm.org.apache.spark.sql.execution.streaming.sinks.FileStreamSink(
            self._spark._jsparkSession,
            self.data_directory,
            jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat(),
            jvm.PythonUtils.toSeq(self._partitions),
            jvm.PythonUtils.toScalaMap(options),
        )


def _scalars(row: Any) -> dict[str, object]:
    return {name: row.get(place) for place, name in enumerate(row.schema().fieldNames())}
