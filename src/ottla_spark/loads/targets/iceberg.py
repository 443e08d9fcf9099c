"""Iceberg tables: executors write Parquet files, the driver adds them with pyiceberg.

A commit holds the snapshot with the files and, in the snapshot and as a property of the table,
the batch's number under the checkpoint's id. The property is what is asked later: it outlives
snapshots that are expired.

Iceberg keeps partition columns in the files and derives partition values from them, so Spark
lays the files out by copies of those columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.options.partition_by import PartitionBy, partition_value
from ottla_spark.loads.schema.arrow_types import arrow_schema, spark_schema
from ottla_spark.loads.schema.evolution import difference, missing_fields
from ottla_spark.loads.state.load_directory import HIDDEN
from ottla_spark.loads.state.storage import Storage
from ottla_spark.loads.targets.staged_files import Staging, check_rows, staged_rows
from ottla_spark.loads.targets.table_writer import DELETED, Added, Batch

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table import Transaction
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

_LAYOUT = "_ottla_layout_"
_NO_MATCH = "Delete operation did not match any records"


class IcebergTarget:
    """The table `place` (CATALOG.NAMESPACE.TABLE); `properties` are added to its catalog's."""

    def __init__(
        self, spark: SparkSession, place: str, topic: str, properties: Mapping[str, str]
    ) -> None:
        self.data_directory = ""
        self._storage = Storage(spark)
        self._partitions: list[PartitionBy] = []
        self._topic = topic
        self._catalog_name, _, self._identifier = place.partition(".")
        self._catalog = _open_catalog(self._catalog_name, properties)
        if self._catalog.table_exists(self._identifier):
            self._found()

    def prepare(
        self, schema: StructType, partitions: Sequence[PartitionBy], *, widen: bool
    ) -> None:
        """Make the namespace and the table, or see that the one there takes these columns."""
        self._partitions = list(partitions)
        if not self._catalog.table_exists(self._identifier):
            self._create(schema)
        elif widen:
            self.widen(schema)
        table = self._found()
        problem = difference(_schema_of(table), schema)
        if problem:
            raise LoadUsageError(f"{self._identifier} has other columns: {problem}")
        self._check_partitions(table)

    def widen(self, schema: StructType) -> None:
        """Add what is missing, nested fields too, with a commit of its own."""
        table = self._open()
        if missing_fields(_schema_of(table), schema).fields:
            with table.update_schema() as update:
                update.union_by_name(arrow_schema(schema))
            names = table.refresh().schema().name_mapping.model_dump_json()
            with table.transaction() as transaction:
                transaction.set_properties({"schema.name-mapping.default": names})

    def last_batch(self, query_id: str) -> int | None:
        """The number under the checkpoint's id."""
        properties = self._open().properties
        owner = properties.get(f"ottla.load.{self._topic}")
        if owner is not None and owner != query_id:
            raise LoadUsageError(
                f"{self._identifier} has records of {self._topic} that were loaded with another"
                " checkpoint: give that one with --checkpoint, or another table"
            )
        number = properties.get(f"ottla.batch.{query_id}")
        return None if number is None else int(number)

    def add(
        self, batch: Batch, rows: DataFrame, measures: Observation, most_rows_a_file: int
    ) -> Added:
        """Let executors write the files, then add them in one commit."""
        table = self._open()
        layout = [f"{_LAYOUT}{place}" for place in range(len(self._partitions))]
        for name, part in zip(layout, self._partitions, strict=True):
            kind = rows.schema[part.source].dataType
            rows = rows.withColumn(name, partition_value(part, rows[part.source], kind))
        staging = Staging(self._storage, f"{table.location()}/data")
        files = staging.write(rows, staging.new_attempt(batch), layout, most_rows_a_file)
        check_rows(files, measures.get)
        with table.transaction() as transaction:
            if files:
                transaction.add_files(
                    [file.uri for file in files],
                    snapshot_properties=self._snapshot_note(batch),
                    check_duplicate_files=False,  # the names are new: a UUID each
                )
            self._note(transaction, batch)
        return Added(len(files), sum(file.size for file in files), measures.get)

    def upsert(
        self, batch: Batch, rows: DataFrame, measures: Observation, key: Sequence[str]
    ) -> Added:
        """Delete the rows of every key that is given and append those that go on, in one commit."""
        import pyarrow.dataset as ds
        from pyiceberg.expressions import In

        aside = Staging(self._storage, f"{self.data_directory}/{HIDDEN}/staging")
        directory = aside.new_attempt(batch)
        files = aside.write(rows, directory, (), 0)
        table = self._open()
        if files:
            given = staged_rows(files).to_table()
            stay = given.filter(ds.field(DELETED) == False).drop_columns([DELETED])  # noqa: E712
            with table.transaction() as transaction, warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=_NO_MATCH)
                (name,) = key
                note = self._snapshot_note(batch)
                gone = In(name, given[name].to_pylist())  # type: ignore[call-arg,arg-type]
                transaction.delete(gone, snapshot_properties=note)
                if stay.num_rows:
                    transaction.append(stay, snapshot_properties=note)
                self._note(transaction, batch)
        self._storage.remove(directory)
        return Added(len(files), sum(file.size for file in files), measures.get)

    def clean(self, batch: Batch) -> int:
        """Remove the directories of attempts whose batch the table does not hold."""
        places = (f"{self.data_directory}/data", f"{self.data_directory}/{HIDDEN}/staging")
        return sum(Staging(self._storage, place).clean(batch) for place in places)

    def compact(self, target_file_size: int) -> int:
        """Refused: pyiceberg has no rewrite of data files."""
        raise LoadUsageError(
            "--compact is for parquet: and delta:; compact an Iceberg table with its own engine"
        )

    def _create(self, schema: StructType) -> None:
        namespace = self._identifier.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        transaction = self._catalog.create_table_transaction(self._identifier, arrow_schema(schema))
        with transaction as creating:
            if self._partitions:
                with creating.update_spec() as spec:
                    for part in self._partitions:
                        spec.add_field(part.source, part.transform, part.column_in_iceberg)

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
                " give --partition-by as it is"
            )

    @staticmethod
    def _snapshot_note(batch: Batch) -> dict[str, str]:
        return {"ottla.query-id": batch.query_id, "ottla.batch": str(batch.number)}

    def _note(self, transaction: Transaction, batch: Batch) -> None:
        transaction.set_properties(
            {
                f"ottla.batch.{batch.query_id}": str(batch.number),
                f"ottla.load.{self._topic}": batch.query_id,
            }
        )


def _open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    from pyiceberg.catalog import load_catalog

    try:
        return load_catalog(name, **dict(properties))
    except ValueError as error:
        raise LoadUsageError(
            f"the Iceberg catalog {name} is not known ({error}). Say where it is in"
            f" ~/.pyiceberg.yaml, or with --catalog uri=sqlite:///{name}.db"
            " --catalog warehouse=file:///place/for/tables"
        ) from None
    except ImportError as error:
        raise LoadError(f"the Iceberg catalog {name} needs another package: {error}") from None


def _schema_of(table: IcebergTable) -> StructType:
    return spark_schema(table.schema().as_arrow())
