"""The target `delta:PATH`. Executors write Parquet files, the driver commits them with delta-rs.

A commit holds the files and a transaction identifier: the checkpoint's id and the batch's number.
The table can be asked for it later. An attempt that is killed before its commit leaves a directory
whose name tells the batch; the next attempt removes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.schema.evolution import as_nullable, difference, missing_fields
from ottla_spark.loads.state.load_directory import HIDDEN
from ottla_spark.loads.state.storage import Storage
from ottla_spark.loads.targets.delta_reader import read_delta
from ottla_spark.loads.targets.delta_statistics import delta_statistics
from ottla_spark.loads.targets.staged_files import StagedFile, Staging, check_rows, staged_rows
from ottla_spark.loads.targets.table_writer import DELETED, Added, Batch, TableWriter
from ottla_spark.loads.targets.target import Target

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

    from ottla_spark.loads.options.partition_by import PartitionBy

DATA = "data"
_METADATA_KEY = "ottla"
_COMMITS_LOOKED_AT = 100


class DeltaTarget(Target):
    """Delta tables."""

    scheme: ClassVar[str] = "delta"
    form: ClassVar[str] = "delta:PATH"

    def why_no_upsert(self, key_columns: int) -> str:
        """Return nothing: Delta replaces rows by any key."""
        return ""

    def why_no_compaction(self) -> str:
        """Return nothing: Delta has an operation for it."""
        return ""

    def open(
        self,
        spark: SparkSession,
        location: str,
        writer: str,
        *,
        catalog: Mapping[str, str],
        compacted: bool = False,
    ) -> DeltaTableWriter:
        """Open the table in a directory."""
        return DeltaTableWriter(spark, location, writer)

    def read(self, spark: SparkSession, location: str, catalog: Mapping[str, str]) -> DataFrame:
        """Return the rows of the table's current version."""
        return read_delta(spark, location)


TARGET = DeltaTarget()


class DeltaTableWriter(TableWriter):
    """The table in the directory `path`. Its commits name `topic`."""

    def __init__(self, spark: SparkSession, path: str, topic: str) -> None:
        self.data_directory = path
        self._partitions: list[str] = []
        self._topic = topic
        storage = Storage(spark)
        self._staging = Staging(storage, f"{path}/{DATA}")
        self._aside = Staging(storage, f"{path}/{HIDDEN}/staging")
        self._storage = storage

    def prepare(
        self, schema: StructType, partitions: Sequence[PartitionBy], *, widen: bool
    ) -> None:
        """Create the table, or check that the existing one has these columns."""
        from deltalake import DeltaTable, Schema

        self._partitions = [part.column for part in partitions]
        if not DeltaTable.is_deltatable(self.data_directory):
            DeltaTable.create(
                self.data_directory,
                Schema.from_json(as_nullable(schema).json()),
                partition_by=self._partitions,
            )
            return
        if widen:
            self.widen(schema)
        table = self._open()
        if table.metadata().partition_columns != self._partitions:
            raise LoadUsageError(
                f"{self.data_directory} is partitioned by"
                f" {table.metadata().partition_columns or 'nothing'}, not by"
                f" {self._partitions or 'nothing'}: set --partition-by to what the table has"
            )
        problem = difference(_schema_of(table), schema)
        if problem:
            raise LoadUsageError(f"{self.data_directory} has different columns: {problem}")

    def widen(self, schema: StructType) -> None:
        """Add the missing columns in a separate commit. A second call adds nothing."""
        from deltalake import Schema

        table = self._open()
        missing = missing_fields(_schema_of(table), schema)
        if missing.fields:
            table.alter.add_columns(list(Schema.from_json(missing.json()).fields))

    def last_batch(self, query_id: str) -> int | None:
        """Return the transaction version of the checkpoint's id."""
        table = self._open()
        last = table.transaction_version(query_id)
        if last is None:
            self._check_other_checkpoint(table)
        return last

    def add(
        self, batch: Batch, rows: DataFrame, measures: Observation, most_rows_a_file: int
    ) -> Added:
        """Let the executors write the files, then commit them."""
        directory = self._staging.new_attempt(batch)
        files = self._staging.write(rows, directory, self._partitions, most_rows_a_file)
        check_rows(files, measures.get)
        table = self._open()
        table.create_write_transaction(
            [self._action(directory, file) for file in files],
            mode="append",
            schema=table.schema(),
            partition_by=self._partitions,
            commit_properties=self._properties(batch),
        )
        return Added(len(files), sum(file.size for file in files), measures.get)

    def upsert(
        self, batch: Batch, rows: DataFrame, measures: Observation, key: Sequence[str]
    ) -> Added:
        """Let the executors write the rows to a separate directory, then merge them."""
        directory = self._aside.new_attempt(batch)
        files = self._aside.write(rows, directory, (), 0)
        table = self._open()
        if files:
            source = staged_rows(files).scanner().to_reader()
            on = " AND ".join(f't."{name}" = s."{name}"' for name in key)
            columns = {f'"{f.name}"': f's."{f.name}"' for f in table.schema().fields}
            merge = table.merge(
                source,
                predicate=on,
                source_alias="s",
                target_alias="t",
                commit_properties=self._properties(batch),
            )
            merge = merge.when_matched_delete(predicate=f's."{DELETED}"')
            merge = merge.when_matched_update(columns)
            merge.when_not_matched_insert(columns, predicate=f'NOT s."{DELETED}"').execute()
        self._storage.remove(directory)
        return Added(len(files), sum(file.size for file in files), measures.get)

    def clean(self, batch: Batch) -> int:
        """Remove the directories of attempts at batches that the table does not have."""
        return self._staging.clean(batch) + self._aside.clean(batch)

    def compact(self, target_file_size: int) -> int:
        """Run Delta's optimize. Old versions keep their files until a vacuum."""
        done = self._open().optimize.compact(target_size=target_file_size)
        return int(done["numFilesRemoved"])

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.data_directory)

    def _action(self, directory: str, file: StagedFile) -> AddAction:
        from deltalake.transaction import AddAction

        inside = directory.removeprefix(self.data_directory).strip("/")
        return AddAction(
            path=f"{inside}/{file.relative}",
            size=file.size,
            partition_values=file.partition,
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=json.dumps(delta_statistics(file.footer)),
        )

    def _properties(self, batch: Batch) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        note = {"topic": self._topic, "query_id": batch.query_id, "batch": batch.number}
        return CommitProperties(
            custom_metadata={_METADATA_KEY: json.dumps(note)},
            app_transactions=[Transaction(batch.query_id, batch.number)],
        )

    def _check_other_checkpoint(self, table: DeltaTable) -> None:
        """Raise LoadUsageError if another checkpoint loaded the topic: records would come twice."""
        for commit in table.history(_COMMITS_LOOKED_AT):
            if json.loads(commit.get(_METADATA_KEY) or "{}").get("topic") == self._topic:
                raise LoadUsageError(
                    f"{self.data_directory} has records of {self._topic} that were loaded with"
                    " another checkpoint: name that one with --checkpoint, or use another table"
                )


def _schema_of(table: DeltaTable) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(table.schema().to_json()))
