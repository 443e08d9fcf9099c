"""From records to rows: which columns a table has, and how they are made.

Raw tables have the columns of Spark's Kafka source. Others have the fields of the values, then
the record's coordinates if asked for; upserted ones always have the key. Parquet and Delta
tables get a column for each partition made from a time; Iceberg derives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla_spark.loads.errors import LoadUsageError
from ottla_spark.loads.formats.format import VALUE
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.options.partition_by import PartitionBy, partition_type, partition_value
from ottla_spark.loads.targets.address import Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COORDINATES = ("topic", "partition", "offset", "timestamp", "key")


@dataclass(frozen=True)
class TableColumn:
    """A column named `name`, made from `source` of the decoded records."""

    name: str
    source: str
    kind: DataType
    part: PartitionBy | None = None

    def make(self, table: Kind) -> Column:
        """The expression that gives the column, with the type it has in the table."""
        from pyspark.sql import functions as F

        source = F.col(self.source)
        if self.part is not None:
            return partition_value(self.part, source, self.kind).alias(self.name)
        kind = _for_table(self.kind, table)
        return (source if kind == self.kind else source.cast(kind)).alias(self.name)

    def table_type(self, table: Kind) -> DataType:
        """The type of the column in the table."""
        return _for_table(self.kind, table) if self.part is None else partition_type(self.part)


@dataclass(frozen=True)
class Shape:
    """The rows of a table; `partitions` name its own columns."""

    table: Kind
    columns: tuple[TableColumn, ...]
    partitions: tuple[PartitionBy, ...]
    key: str

    @property
    def schema(self) -> StructType:
        """All columns in order."""
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(c.name, c.table_type(self.table)) for c in self.columns])

    def expressions(self) -> list[Column]:
        """The columns, made from decoded records."""
        return [column.make(self.table) for column in self.columns]

    def rows(self, decoded: DataFrame) -> DataFrame:
        """The rows of decoded records."""
        return decoded.select(*self.expressions())


def make_shape(options: LoadOptions, values: StructType | None) -> Shape:
    """The rows of a load; `values` are the fields of its values, None when they stay raw."""
    columns = _raw_columns(options) if values is None else _value_columns(options, values)
    partitions = tuple(_resolve(part, options, columns) for part in options.partition_by)
    if options.to.kind is not Kind.ICEBERG:
        columns += [_partition_column(part, columns) for part in partitions if part.is_time]
    names = [column.name.lower() for column in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LoadUsageError(f"the table would have two columns {twice!r}: rename one")
    return Shape(options.to.kind, tuple(columns), partitions, "key" if values is None else "_key")


def _raw_columns(options: LoadOptions) -> list[TableColumn]:
    names = (*RAW_COLUMNS, "headers") if options.headers else RAW_COLUMNS
    return [TableColumn(name, name, kafka_type(name)) for name in names]


def _value_columns(options: LoadOptions, values: StructType) -> list[TableColumn]:
    fields = [
        TableColumn(field.name, f"{VALUE}.{_quoted(field.name)}", field.dataType)
        for field in values.fields
    ]
    names = COORDINATES if options.coordinates else (("key",) if options.upsert else ())
    names = (*names, "headers") if options.headers else names
    return fields + [TableColumn(f"_{name}", name, kafka_type(name)) for name in names]


def _resolve(
    part: PartitionBy, options: LoadOptions, columns: Sequence[TableColumn]
) -> PartitionBy:
    """The partition with the name of a column; `timestamp` may be the record's own."""
    names = [column.name for column in columns]
    if part.source in names:
        return part
    if part.source == "timestamp" and part.is_time:
        if "_timestamp" in names:
            return replace(part, source="_timestamp")
        if options.to.kind is not Kind.ICEBERG:
            return part
        raise LoadUsageError(
            f"--partition-by {part}: an Iceberg table is partitioned by columns it has;"
            " --coordinates gives it the record's timestamp"
        )
    raise LoadUsageError(
        f"--partition-by {part}: there is no column {part.source}, but {', '.join(names)}"
    )


def _partition_column(part: PartitionBy, columns: Sequence[TableColumn]) -> TableColumn:
    for column in columns:
        if column.name == part.source:
            return TableColumn(part.column, column.source, column.kind, part)
    return TableColumn(part.column, part.source, kafka_type(part.source), part)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def kafka_type(name: str) -> DataType:
    """The type of a column of the source."""
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


def _for_table(kind: DataType, table: Kind) -> DataType:
    """The type that a column has in this kind of table: Iceberg has no small integers."""
    from pyspark.sql import types as T

    if table is not Kind.ICEBERG:
        return kind
    if isinstance(kind, T.StructType):
        fields = [T.StructField(f.name, _for_table(f.dataType, table)) for f in kind.fields]
        return T.StructType(fields)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_for_table(kind.elementType, table))
    if isinstance(kind, T.MapType):
        return T.MapType(_for_table(kind.keyType, table), _for_table(kind.valueType, table))
    return T.IntegerType() if isinstance(kind, T.ByteType | T.ShortType) else kind
