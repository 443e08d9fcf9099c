"""The target `delta:PATH`. Executors write Parquet files, the driver commits them with delta-rs.

A commit holds the files and two transaction identifiers. The first is the checkpoint's id with the
batch's number. The second names the topic, with a number made of the checkpoint's id: if two loads
with different checkpoints start at the same moment, Delta refuses the second commit, because both
set the same identifier. The table can be asked for both later.

An attempt that is killed before its commit leaves a directory whose name has the batch; the next
attempt removes it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from ottla_spark.loads.errors import LoadUsageError, RolledBack
from ottla_spark.loads.schema.arrow_types import arrow_schema
from ottla_spark.loads.schema.evolution import as_nullable, difference, missing_fields
from ottla_spark.loads.state.load_directory import HIDDEN
from ottla_spark.loads.state.object_store import delta_options, unreachable
from ottla_spark.loads.state.storage import storage_of
from ottla_spark.loads.targets.delta_lineage import NOTE, lost_batch, note_of
from ottla_spark.loads.targets.delta_reader import read_delta
from ottla_spark.loads.targets.delta_statistics import delta_statistics
from ottla_spark.loads.targets.staged_files import StagedFile, Staging, check_rows, staged_rows
from ottla_spark.loads.targets.table_writer import DELETED, Added, Batch, TableWriter
from ottla_spark.loads.targets.target import Glance, Target

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import AddAction
    from pyarrow import RecordBatchReader
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

    from ottla_spark.loads.options.partition_by import PartitionBy

DATA = "data"
NO_OWNER = 0


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

    def glance(self, location: str, writer: str, *, catalog: Mapping[str, str]) -> Glance:
        """Return the directory of the table and its last batch."""
        table = DeltaTableWriter(None, location, writer)
        if not table.exists():
            return Glance("", lambda _: None)
        return Glance(location, table.last_batch)

    def read(self, spark: SparkSession, location: str, catalog: Mapping[str, str]) -> DataFrame:
        """Return the rows of the table's current version."""
        return read_delta(spark, location)


TARGET = DeltaTarget()


class DeltaTableWriter(TableWriter):
    """The table in the directory `path`. Its commits name `topic`."""

    def __init__(self, spark: SparkSession | None, path: str, topic: str) -> None:
        self.data_directory = path
        self._partitions: list[str] = []
        self._topic = topic
        storage = storage_of(spark, path)
        self._options = delta_options(path)
        self._staging = Staging(storage, f"{path}/{DATA}")
        self._aside = Staging(storage, f"{path}/{HIDDEN}/staging")
        self._storage = storage

    def exists(self) -> bool:
        """Return whether there is a table."""
        from deltalake import DeltaTable

        try:
            return DeltaTable.is_deltatable(self.data_directory, storage_options=self._options)
        except OSError as error:
            raise unreachable(self.data_directory, error) from error

    def prepare(
        self, schema: StructType, partitions: Sequence[PartitionBy], *, widen: bool
    ) -> None:
        """Create the table, or check that the existing one has these columns."""
        from deltalake import DeltaTable, Schema

        self._partitions = [part.column for part in partitions]
        if not self.exists():
            DeltaTable.create(
                self.data_directory,
                Schema.from_json(as_nullable(schema).json()),
                partition_by=self._partitions,
                mode="ignore",  # another load may create it at this moment
                storage_options=self._options,
            )
        elif widen:
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
        if not self.exists():
            return None
        table = self._open()
        self._check_owner(table, query_id)
        last = table.transaction_version(query_id)
        if last is not None and lost_batch(table, query_id):
            raise RolledBack(
                f"{self.data_directory} was restored to a version without batch {last}, which the"
                " checkpoint says was loaded"
            )
        return last

    def add(
        self, batch: Batch, rows: DataFrame, measures: Observation, most_rows_a_file: int
    ) -> Added:
        """Let the executors write the files, then commit them."""
        directory = self._staging.new_attempt(batch)
        files = self._staging.write(rows, directory, self._partitions, most_rows_a_file)
        check_rows(files, measures.get)
        with self._commit(batch, directory) as table:
            actions = [self._action(directory, file) for file in files]
            self._append(actions, table, self._properties(batch))
        return Added(len(files), sum(file.size for file in files), measures.get)

    def upsert(
        self, batch: Batch, rows: DataFrame, measures: Observation, key: Sequence[str]
    ) -> Added:
        """Let the executors write the rows to a separate directory, then merge them."""
        directory = self._aside.new_attempt(batch)
        files = self._aside.write(rows, directory, (), 0)
        with self._commit(batch, directory) as table:
            if files:
                self._merge(files, table, batch, key)
            else:
                self._append([], table, self._properties(batch))
        self._storage.remove(directory)
        return Added(len(files), sum(file.size for file in files), measures.get)

    def clean(self, batch: Batch) -> int:
        """Remove the directories of attempts at batches that the table does not have."""
        return self._staging.clean(batch) + self._aside.clean(batch)

    def compact(self, target_file_size: int) -> int:
        """Run Delta's optimize. Old versions keep their files until a vacuum."""
        done = self._open().optimize.compact(target_size=target_file_size)
        return int(done["numFilesRemoved"])

    def other_writers(self) -> list[str]:
        """Return the other topics in the notes of commits since the last reset."""
        found: set[str] = set()
        for commit in self._open().history() if self.exists() else ():
            note = note_of(commit)
            if note.get("reset"):
                break
            found.add(note.get("topic", self._topic))
        return sorted(found - {self._topic})

    def reset(self) -> None:
        """Delete all rows in one commit. Older versions keep them until a vacuum."""
        if not self.exists():
            return
        table = self._open()
        owner = self._owner_transaction(NO_OWNER)
        note = {"topic": self._topic, "reset": True}
        properties = _commit_properties(note, [owner])
        table.delete(commit_properties=properties)
        table = self._open()
        if table.transaction_version(owner.app_id) not in (None, NO_OWNER):
            self._append([], table, properties)  # without rows there was no commit

    @contextmanager
    def _commit(self, batch: Batch, directory: str) -> Iterator[DeltaTable]:
        """Give the table to commit to. Two loads of one topic cannot both commit to it.

        The loser removes the files of its attempt and raises LoadUsageError.
        """
        from deltalake.exceptions import CommitFailedError

        table = self._open()
        try:
            self._check_owner(table, batch.query_id)
            try:
                yield table
            except CommitFailedError:
                self._check_owner(self._open(), batch.query_id)
                raise
        except LoadUsageError:
            self._storage.remove(directory)
            raise

    def _append(
        self, actions: Sequence[AddAction], table: DeltaTable, properties: CommitProperties
    ) -> None:
        table.create_write_transaction(
            [*actions],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=properties,
        )

    def _merge(
        self, files: list[StagedFile], table: DeltaTable, batch: Batch, key: Sequence[str]
    ) -> None:
        source = _with_nested_fields(staged_rows(files).scanner().to_reader(), _schema_of(table))
        on = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)
        names = [name for name in source.schema.names if name != DELETED]
        # The table may have other columns too: they keep their values.
        columns = {_quoted(name): f"s.{_quoted(name)}" for name in names}
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

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.data_directory, storage_options=self._options)

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
        from deltalake import Transaction

        note = {"topic": self._topic, "query_id": batch.query_id, "batch": batch.number}
        owner = self._owner_transaction(_owner_number(batch.query_id))
        return _commit_properties(note, [Transaction(batch.query_id, batch.number), owner])

    def _owner_transaction(self, number: int) -> Transaction:
        from deltalake import Transaction

        return Transaction(f"ottla.load.{self._topic}", number)

    def _check_owner(self, table: DeltaTable, query_id: str) -> None:
        """Raise LoadUsageError if another checkpoint loaded the topic: records would come twice."""
        owner = table.transaction_version(self._owner_transaction(NO_OWNER).app_id)
        if owner not in (None, NO_OWNER, _owner_number(query_id)):
            raise LoadUsageError(
                f"{self.data_directory} has records of {self._topic} that were loaded with"
                " another checkpoint: name that one with --checkpoint, use another table, or"
                " start over with --reset"
            )


def _owner_number(query_id: str) -> int:
    """Return a number for a checkpoint that no other one has: 60 bits of its id."""
    return int(hashlib.sha256(query_id.encode()).hexdigest()[:15], 16) or 1


def _commit_properties(
    note: Mapping[str, object], transactions: list[Transaction]
) -> CommitProperties:
    from deltalake import CommitProperties

    return CommitProperties(custom_metadata={NOTE: json.dumps(note)}, app_transactions=transactions)


def _quoted(name: str) -> str:
    """Return a name for an expression of delta-rs."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _with_nested_fields(rows: RecordBatchReader, there: StructType) -> RecordBatchReader:
    """Return rows whose structs have all fields of the table, which may have more of them."""
    import pyarrow as pa

    wanted = arrow_schema(there)
    fields = [
        wanted.field(field.name)
        if field.name in wanted.names and pa.types.is_nested(field.type)
        else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def _schema_of(table: DeltaTable) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(table.schema().to_json()))
