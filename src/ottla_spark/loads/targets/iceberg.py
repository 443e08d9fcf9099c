"""The target `iceberg:CATALOG.NAMESPACE.TABLE`. Executors write files, pyiceberg adds them.

A commit holds the files, and the batch's number under the checkpoint's id: in the snapshot and in
a property of the table. Loads read the property, because snapshots expire. Another property has
the snapshot, because a rollback does not change properties.

Each commit is made for the snapshot that the table had when its owner was checked. If another
commit was faster, the owner is checked again, so two loads of one topic cannot both commit.

Iceberg keeps partition columns in the files and derives partition values from them. Spark
therefore partitions the files by copies of those columns.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ottla_spark.loads.errors import LoadError, LoadUsageError, RolledBack
from ottla_spark.loads.options.partition_by import IDENTITY, PartitionBy, partition_value
from ottla_spark.loads.schema.arrow_types import arrow_schema, spark_schema
from ottla_spark.loads.schema.evolution import difference, missing_fields
from ottla_spark.loads.state.load_directory import HIDDEN
from ottla_spark.loads.state.object_store import iceberg_properties
from ottla_spark.loads.state.storage import Storage, storage_of
from ottla_spark.loads.targets.iceberg_lineage import has_snapshot
from ottla_spark.loads.targets.staged_files import Staging, check_rows, staged_rows
from ottla_spark.loads.targets.table_writer import DELETED, Added, Batch, TableWriter
from ottla_spark.loads.targets.target import Glance, Target, UnreadableTable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table import Transaction
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
    from pyspark.sql.types import DataType, StructType

_LAYOUT = "_ottla_layout_"
_NO_MATCH = "Delete operation did not match any records"
_BATCH = "ottla.batch."
_SNAPSHOT = "ottla.snapshot."
_OWNER = "ottla.load."
_RETRIES = "commit.retry.num-retries"
_METRICS = "write.metadata.metrics.column"
_COMMIT_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.1


class IcebergTarget(Target):
    """Iceberg tables."""

    scheme: ClassVar[str] = "iceberg"
    form: ClassVar[str] = "iceberg:CATALOG.NAMESPACE.TABLE"
    is_directory: ClassVar[bool] = False
    stores_partition_columns: ClassVar[bool] = False

    def parse_location(self, text: str, resolve: Callable[[str], str]) -> str | None:
        """Return the dotted name; None unless it has at least three parts."""
        parts = text.split(".")
        return text if len(parts) >= 3 and all(parts) else None

    def table_name(self, location: str) -> str:
        """Return the last part of the dotted name."""
        return location.rpartition(".")[2]

    def catalog_name(self, location: str) -> str:
        """Return the first part of the dotted name."""
        return location.partition(".")[0]

    def why_no_catalog(self, location: str, catalog: Mapping[str, str]) -> str:
        """Return why the catalog is unknown or cannot be opened."""
        from pyiceberg.catalog import load_catalog
        from sqlalchemy.exc import SQLAlchemyError

        name = self.catalog_name(location)
        try:
            load_catalog(name, **(iceberg_properties() | dict(catalog)))
        except (ValueError, ImportError) as error:
            return f"unknown Iceberg catalog {name}: {error}"
        except (OSError, SQLAlchemyError) as error:
            first = next(iter(str(error).splitlines()), repr(error))
            return f"the Iceberg catalog {name} cannot be opened: {first}"
        return ""

    def why_no_upsert(self, key_columns: int) -> str:
        """Return why the key has too many columns; empty for one column."""
        return "an Iceberg table is updated by one column" if key_columns > 1 else ""

    def why_no_compaction(self) -> str:
        """Return what to use instead: pyiceberg cannot rewrite data files."""
        return "pyiceberg cannot rewrite data files; compact the table with another engine"

    def column_type(self, kind: DataType) -> DataType:
        """Return the type in the table: INT for the smaller integers that Iceberg lacks."""
        from pyspark.sql import types as T

        if isinstance(kind, T.StructType):
            fields = [T.StructField(f.name, self.column_type(f.dataType)) for f in kind.fields]
            return T.StructType(fields)
        if isinstance(kind, T.ArrayType):
            return T.ArrayType(self.column_type(kind.elementType))
        if isinstance(kind, T.MapType):
            return T.MapType(self.column_type(kind.keyType), self.column_type(kind.valueType))
        return T.IntegerType() if isinstance(kind, T.ByteType | T.ShortType) else kind

    def open(
        self,
        spark: SparkSession,
        location: str,
        writer: str,
        *,
        catalog: Mapping[str, str],
        compacted: bool = False,
    ) -> IcebergTableWriter:
        """Open the table with this dotted name."""
        return IcebergTableWriter(spark, location, writer, catalog)

    def glance(self, location: str, writer: str, *, catalog: Mapping[str, str]) -> Glance:
        """Return the location of the table and its last batch."""
        table = IcebergTableWriter(None, location, writer, catalog)
        return Glance(table.data_directory, table.last_batch)

    def read(self, spark: SparkSession, location: str, catalog: Mapping[str, str]) -> DataFrame:
        """Return the rows of the current snapshot, which Spark reads from its Parquet files."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        catalog_name, _, identifier = location.partition(".")
        try:
            table = load_catalog(catalog_name, **dict(catalog)).load_table(identifier)
        except ValueError as error:
            raise UnreadableTable(f"unknown Iceberg catalog {catalog_name}: {error}") from None
        except NoSuchTableError as error:
            raise UnreadableTable(str(error)) from None
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise UnreadableTable(f"{location} has delete files, which Ottla cannot read")
        schema = _schema_of(table)
        if not tasks:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(*(task.file.file_path for task in tasks))


TARGET = IcebergTarget()


class IcebergTableWriter(TableWriter):
    """The table `place` (CATALOG.NAMESPACE.TABLE). `properties` are added to its catalog's."""

    def __init__(
        self, spark: SparkSession | None, place: str, topic: str, properties: Mapping[str, str]
    ) -> None:
        self.data_directory = ""
        self._spark = spark
        self._partitions: list[PartitionBy] = []
        self._topic = topic
        self._is_new = False
        self._catalog_name, _, self._identifier = place.partition(".")
        self._catalog = _open_catalog(self._catalog_name, properties)
        if self._catalog.table_exists(self._identifier):
            self._found()

    def prepare(
        self, schema: StructType, partitions: Sequence[PartitionBy], *, widen: bool
    ) -> None:
        """Create the namespace and the table, or check that the existing one has these columns."""
        self._partitions = list(partitions)
        self._is_new = not self._catalog.table_exists(self._identifier)
        if self._is_new:
            self._create(schema)
        elif widen:
            self.widen(schema)
        table = self._found()
        problem = difference(_schema_of(table), schema)
        if problem:
            raise LoadUsageError(f"{self._identifier} has different columns: {problem}")
        self._check_partitions(table)

    def widen(self, schema: StructType) -> None:
        """Add the missing columns and nested fields in a separate commit."""
        table = self._open()
        if missing_fields(_schema_of(table), schema).fields:
            with table.update_schema() as update:
                update.union_by_name(arrow_schema(schema))
            names = table.refresh().schema().name_mapping.model_dump_json()
            with table.transaction() as transaction:
                transaction.set_properties({"schema.name-mapping.default": names})

    def last_batch(self, query_id: str) -> int | None:
        """Return the number under the checkpoint's id."""
        if not self._catalog.table_exists(self._identifier):
            return None
        table = self._open()
        self._check_owner(table, query_id)
        number = table.properties.get(_BATCH + query_id)
        if number is None:
            return None
        snapshot = table.properties.get(_SNAPSHOT + query_id)
        if snapshot is not None and not has_snapshot(table.metadata, *map(int, snapshot.split())):
            raise RolledBack(
                f"{self._identifier} was rolled back to a snapshot without batch {number}, which"
                " the checkpoint says was loaded"
            )
        return int(number)

    def add(
        self, batch: Batch, rows: DataFrame, measures: Observation, most_rows_a_file: int
    ) -> Added:
        """Let the executors write the files, then add them in one commit."""
        layout = [f"{_LAYOUT}{place}" for place in range(len(self._partitions))]
        for name, part in zip(layout, self._partitions, strict=True):
            kind = rows.schema[part.source].dataType
            value = partition_value(part, rows[part.source], kind)
            rows = rows.withColumn(name, _apart_from_null(value, rows[part.source], kind))
        staging = Staging(self._storage, f"{self.data_directory}/data")
        directory = staging.new_attempt(batch)
        files = staging.write(rows, directory, layout, most_rows_a_file)
        check_rows(files, measures.get)

        def add_files(transaction: Transaction) -> None:
            transaction.add_files(
                [file.uri for file in files],
                snapshot_properties=self._snapshot_note(batch),
                check_duplicate_files=False,  # each name has a new UUID
            )

        self._commit(batch, directory, add_files if files else None)
        return Added(len(files), sum(file.size for file in files), measures.get)

    def upsert(
        self, batch: Batch, rows: DataFrame, measures: Observation, key: Sequence[str]
    ) -> Added:
        """Delete the rows of all given keys and append the rows to keep, in one commit."""
        import pyarrow.dataset as ds
        from pyiceberg.expressions import In

        aside = Staging(self._storage, f"{self.data_directory}/{HIDDEN}/staging")
        directory = aside.new_attempt(batch)
        files = aside.write(rows, directory, (), 0)
        given = staged_rows(files).to_table() if files else None

        def replace(transaction: Transaction) -> None:
            assert given is not None
            stay = given.filter(ds.field(DELETED) == False).drop_columns([DELETED])  # noqa: E712
            (name,) = key
            note = self._snapshot_note(batch)
            gone = In(name, given[name].to_pylist())  # type: ignore[call-arg,arg-type]
            transaction.delete(gone, snapshot_properties=note)
            if stay.num_rows:
                transaction.append(stay, snapshot_properties=note)

        self._commit(batch, directory, replace if files else None)
        self._storage.remove(directory)
        return Added(len(files), sum(file.size for file in files), measures.get)

    def clean(self, batch: Batch) -> int:
        """Remove the directories of attempts at batches that the table does not have."""
        places = (f"{self.data_directory}/data", f"{self.data_directory}/{HIDDEN}/staging")
        return sum(Staging(self._storage, place).clean(batch) for place in places)

    def drop_if_new(self) -> bool:
        """Drop the table that `prepare` has created. The files in its directory stay."""
        if self._is_new:
            self._catalog.drop_table(self._identifier)
        return self._is_new

    def other_writers(self) -> list[str]:
        """Return the other topics in the table's properties."""
        if not self._catalog.table_exists(self._identifier):
            return []
        names = (name for name in self._open().properties if name.startswith(_OWNER))
        return sorted({name.removeprefix(_OWNER) for name in names} - {self._topic})

    def reset(self) -> None:
        """Delete all rows in one commit. Older snapshots keep them until they expire."""
        from pyiceberg.expressions import AlwaysTrue

        if not self._catalog.table_exists(self._identifier):
            return
        table = self._open()
        ours = [name for name in table.properties if name.startswith((_BATCH, _SNAPSHOT, _OWNER))]
        with table.transaction() as transaction, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NO_MATCH)
            transaction.delete(AlwaysTrue())
            transaction.remove_properties(*ours)

    def _commit(
        self, batch: Batch, directory: str, change: Callable[[Transaction], None] | None
    ) -> None:
        """Commit a change of the rows, if there is one, with the number of the batch.

        Raise LoadUsageError, and remove the files of the attempt, if another load of the topic
        was faster. Repeat the commit if something else was. Commit files with times that Python
        does not have (before the year 1, after 9999) without bounds of their columns.
        """
        from pyiceberg.exceptions import CommitFailedException

        without_bounds = False
        for attempt in range(_COMMIT_ATTEMPTS):
            table = self._open()
            try:
                self._check_owner(table, batch.query_id)
            except LoadUsageError:
                self._storage.remove(directory)
                raise
            # Without a check of the owner, repeating would add the rows of two loads.
            table.metadata.properties[_RETRIES] = "0"
            if without_bounds:
                for name in _times(table):
                    table.metadata.properties[f"{_METRICS}.{name}"] = "counts"
            try:
                with table.transaction() as transaction, warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=_NO_MATCH)
                    if change is not None:
                        change(transaction)
                    self._note(transaction, batch)
                return
            except OverflowError:
                if without_bounds or attempt + 1 == _COMMIT_ATTEMPTS:
                    raise
                without_bounds = True
            except CommitFailedException:
                if attempt + 1 == _COMMIT_ATTEMPTS:
                    raise
                time.sleep(_FIRST_PAUSE_S * 2**attempt)

    def _check_owner(self, table: IcebergTable, query_id: str) -> None:
        owner = table.properties.get(_OWNER + self._topic)
        if owner is not None and owner != query_id:
            raise LoadUsageError(
                f"{self._identifier} has records of {self._topic} that were loaded with another"
                " checkpoint: name that one with --checkpoint, use another table, or start over"
                " with --reset"
            )

    def _create(self, schema: StructType) -> None:
        namespace = self._identifier.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        transaction = self._catalog.create_table_transaction(self._identifier, arrow_schema(schema))
        with transaction as creating:
            if self._partitions:
                with creating.update_spec() as spec:
                    for part in self._partitions:
                        spec.add_field(part.source, part.transform, _partition_field(part))

    @property
    def _storage(self) -> Storage:
        return storage_of(self._spark, self.data_directory)

    def _found(self) -> IcebergTable:
        table = self._open()
        self.data_directory = table.location().rstrip("/")
        return table

    def _open(self) -> IcebergTable:
        return self._catalog.load_table(self._identifier)

    def _check_partitions(self, table: IcebergTable) -> None:
        there = [
            (table.schema().find_column_name(field.source_id), str(field.transform))
            for field in table.spec().fields
        ]
        if there != [(part.source, part.transform) for part in self._partitions]:
            raise LoadUsageError(
                f"{self._identifier} is partitioned by {there or 'nothing'}, not by"
                f" {', '.join(map(str, self._partitions)) or 'nothing'}:"
                " set --partition-by to what the table has"
            )

    @staticmethod
    def _snapshot_note(batch: Batch) -> dict[str, str]:
        return {"ottla.query-id": batch.query_id, "ottla.batch": str(batch.number)}

    def _note(self, transaction: Transaction, batch: Batch) -> None:
        noted = {_BATCH + batch.query_id: str(batch.number), _OWNER + self._topic: batch.query_id}
        snapshot = transaction.table_metadata.current_snapshot()
        if snapshot is not None:
            number = snapshot.sequence_number or 0
            noted[_SNAPSHOT + batch.query_id] = f"{snapshot.snapshot_id} {number}"
        transaction.set_properties(noted)


def _times(table: IcebergTable) -> list[str]:
    """Return the columns with dates and times, also in structs and lists.

    Those that partition the table are left out: their values come from the bounds of a file.
    """
    from pyiceberg.types import DateType, TimestampType, TimestamptzType

    schema = table.schema()
    sources = {field.source_id for field in table.spec().fields}
    fields = (schema.find_field(name) for name in schema.column_names)
    times = (DateType, TimestampType, TimestamptzType)
    found = [f.field_id for f in fields if isinstance(f.field_type, times)]
    names = (schema.find_column_name(each) for each in found if each not in sources)
    return [name for name in names if name is not None]


def _apart_from_null(value: Column, source: Column, kind: DataType) -> Column:
    """Return a value for paths of files. In paths an empty string and null are the same."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    if not isinstance(kind, StringType):
        return value
    return F.when(source.isNotNull(), F.concat(F.lit("-"), F.coalesce(value, F.lit(""))))


def _open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    from pyiceberg.catalog import load_catalog

    try:
        return load_catalog(name, **(iceberg_properties() | dict(properties)))
    except ValueError as error:
        raise LoadUsageError(
            f"unknown Iceberg catalog {name} ({error}). Configure it in ~/.pyiceberg.yaml, or with"
            f" --catalog uri=sqlite:///{name}.db --catalog warehouse=file:///path/to/tables"
        ) from None
    except ImportError as error:
        raise LoadError(f"the Iceberg catalog {name} needs a Python package: {error}") from None


def _partition_field(part: PartitionBy) -> str:
    """Return the name of a partition field, which must differ from all column names."""
    return part.column if part.is_time else f"{part.source}_{IDENTITY}"


def _schema_of(table: IcebergTable) -> StructType:
    return spark_schema(table.schema().as_arrow())
