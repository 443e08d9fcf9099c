"""The columns of a table, and how they are made from records.

Raw tables have the columns of Spark's Kafka source. Other tables have the fields of the values,
then the record's coordinates if --coordinates is set. Upserted tables always have the key. A
partition such as day(ts) is a column too, unless the target derives it, as Iceberg does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.format import VALUE
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.partition_by import PartitionBy, partition_type, partition_value
from ottla_spark.loads.schema.partition_fit import unfit_partition_values
from ottla_spark.loads.targets.target import Target

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COORDINATES = ("topic", "partition", "offset", "timestamp", "key")


@dataclass(frozen=True)
class TableColumn:
    """A column of the table, made from the column `source` of the decoded records."""

    name: str
    source: str
    kind: DataType
    part: PartitionBy | None = None

    def expression(self, target: Target) -> Column:
        """Return the expression for the column, with the type it has in the table."""
        from pyspark.sql import functions as F

        source = F.col(self.source)
        if self.part is not None:
            return partition_value(self.part, source, self.kind).alias(self.name)
        kind = target.column_type(self.kind)
        return (source if kind == self.kind else source.cast(kind)).alias(self.name)

    def table_type(self, target: Target) -> DataType:
        """Return the type of the column in the table."""
        return target.column_type(self.kind) if self.part is None else partition_type(self.part)


@dataclass(frozen=True)
class TableColumns:
    """All columns of a table. `partitions` refer to columns of the table."""

    target: Target
    columns: tuple[TableColumn, ...]
    partitions: tuple[PartitionBy, ...]
    key: str

    @property
    def schema(self) -> StructType:
        """The schema of the table."""
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(c.name, c.table_type(self.target)) for c in self.columns])

    def expressions(self) -> list[Column]:
        """Return the expressions that make the columns from decoded records."""
        return [column.expression(self.target) for column in self.columns]

    def unfit_partition(self, reason: Column) -> Column:
        """Return why a record does not fit: the reason so far, or a value to partition by."""
        from pyspark.sql import functions as F

        stored = self.target.stores_partition_columns
        for part in self.partitions:
            source, kind = self._source_of(part)
            for is_unfit, why in unfit_partition_values(part, source, kind, stored=stored):
                is_first = reason.isNull() & F.coalesce(is_unfit, F.lit(False))
                reason = F.when(is_first, F.lit(f"{part.source}: {why}")).otherwise(reason)
        return reason

    def _source_of(self, part: PartitionBy) -> tuple[Column, DataType]:
        """Return the column that a partition is made from, and its type."""
        from pyspark.sql import functions as F

        for column in self.columns:
            if column.name == part.source:
                return F.col(column.source), column.kind
        return F.col(part.source), kafka_type(part.source)

    def rows(self, decoded: DataFrame) -> DataFrame:
        """Return the rows of decoded records."""
        return decoded.select(*self.expressions())


def table_columns(options: LoadOptions, values: StructType | None) -> TableColumns:
    """Return the columns for a load. `values` are the fields of its values; None if raw."""
    columns = _raw_columns(options) if values is None else _value_columns(options, values)
    partitions = tuple(_resolve(part, options, columns) for part in options.partition_by)
    if options.to.target.stores_partition_columns:
        columns += [_partition_column(part, columns) for part in partitions if part.is_time]
    names = [column.name.lower() for column in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LoadUsageError(f"the table would have two columns {twice!r}: rename one")
    key = "key" if values is None else "_key"
    return TableColumns(options.to.target, tuple(columns), partitions, key)


def taken_names(options: LoadOptions) -> frozenset[str]:
    """Return the names, in lower case, of columns that are not fields of the values."""
    names = [f"_{name}" for name in _coordinates(options)]
    if options.to.target.stores_partition_columns:
        names += [part.column for part in options.partition_by if part.is_time]
    return frozenset(name.lower() for name in names)


def _raw_columns(options: LoadOptions) -> list[TableColumn]:
    names = (*RAW_COLUMNS, "headers") if options.headers else RAW_COLUMNS
    return [TableColumn(name, name, kafka_type(name)) for name in names]


def _value_columns(options: LoadOptions, values: StructType) -> list[TableColumn]:
    fields = [
        TableColumn(field.name, f"{VALUE}.{_quoted(field.name)}", field.dataType)
        for field in values.fields
    ]
    names = _coordinates(options)
    return fields + [TableColumn(f"_{name}", name, kafka_type(name)) for name in names]


def _coordinates(options: LoadOptions) -> tuple[str, ...]:
    """Return the columns of a record that a table with fields of values has too."""
    names = COORDINATES if options.coordinates else (("key",) if options.upsert else ())
    return (*names, "headers") if options.headers else names


def _resolve(
    part: PartitionBy, options: LoadOptions, columns: Sequence[TableColumn]
) -> PartitionBy:
    """Return the partition with the name of a column. `timestamp` may be the record's own."""
    names = [column.name for column in columns]
    if part.source in names:
        return part
    if part.source == "timestamp" and part.is_time:
        if "_timestamp" in names:
            return replace(part, source="_timestamp")
        if options.to.target.stores_partition_columns:
            return part
        raise LoadUsageError(
            f"--partition-by {part}: a table of this kind is partitioned by its own columns;"
            " --coordinates gives it the record's timestamp"
        )
    raise LoadUsageError(
        f"--partition-by {part}: there is no column {part.source}; the columns are"
        f" {', '.join(names)}"
    )


def _partition_column(part: PartitionBy, columns: Sequence[TableColumn]) -> TableColumn:
    for column in columns:
        if column.name == part.source:
            return TableColumn(part.column, column.source, column.kind, part)
    return TableColumn(part.column, part.source, kafka_type(part.source), part)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def kafka_type(name: str) -> DataType:
    """Return the type of a column of the data source."""
    from pyspark.sql import types as T

    header = T.StructType(
        [T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]
    )
    kinds: dict[str, DataType] = {
        "key": T.BinaryType(),
        "value": T.BinaryType(),
        "topic": T.StringType(),
        "partition": T.IntegerType(),
        "offset": T.LongType(),
        "timestamp": T.TimestampType(),
        "timestampType": T.IntegerType(),
        "headers": T.ArrayType(header),
    }
    return kinds[name]
