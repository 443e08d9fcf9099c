"""Reads tables into Spark without a jar for them.

Parquet is Spark's own. Of Delta and Iceberg the Python libraries tell which Parquet files make
up the table now, and Spark reads those. A table with deletes beside its files (deletion
vectors, delete files) or with renamed columns (column mapping) is refused: its files alone
would show something else than the table.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from ottla_spark.loads.schema.arrow_types import spark_schema
from ottla_spark.pipelines.spec.table_place import TablePlace
from ottla_spark.pipelines.spec.yaml_tree import Scalar

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MAX_PARTITIONS: Final = 500
_BESIDE_FILES: Final = frozenset({"deletionVectors", "columnMapping"})


class UnreadableTable(Exception):
    """The table is not there or not of a kind that can be read; the message says which."""


def read_table(
    session: SparkSession, place: TablePlace, catalogs: Mapping[str, Mapping[str, Scalar]]
) -> DataFrame:
    """The rows of a table as it is now."""
    if place.format == "parquet":
        return session.read.parquet(place.where)
    if place.format == "delta":
        return _delta(session, place.where)
    return _iceberg(session, place.where, catalogs)


def _delta(session: SparkSession, path: str) -> DataFrame:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from pyspark.sql.types import StructType

    try:
        table = DeltaTable(path)
    except DeltaError as error:
        raise UnreadableTable(f"{path} is no Delta table that can be read: {error}") from None
    strange = _BESIDE_FILES & set(table.protocol().reader_features or ())
    if strange:
        raise UnreadableTable(f"{path} has {', '.join(strange)}, which cannot be read here")
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    groups = _files_by_partition(table)
    if len(groups) > MAX_PARTITIONS:
        raise UnreadableTable(f"{path} has more than {MAX_PARTITIONS} partitions")
    if not groups:
        return session.createDataFrame([], schema)
    parts = [
        _with_values(session.read.schema(_without(schema, dict(values))).parquet(*files), values)
        for values, files in groups.items()
    ]
    rows = reduce(lambda some, more: some.unionByName(more), parts)
    return rows.select(*(rows[field.name].cast(field.dataType) for field in schema.fields))


def _files_by_partition(
    table: DeltaTable,
) -> dict[tuple[tuple[str, str | None], ...], list[str]]:
    """The files of each combination of partition values, which are not in the files."""
    groups: defaultdict[tuple[tuple[str, str | None], ...], list[str]] = defaultdict(list)
    columns = table.metadata().partition_columns
    if not columns:
        return {(): table.file_uris()} if table.file_uris() else {}
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for uri, action in zip(table.file_uris(), actions, strict=True):
        values = tuple((name, _text(action[f"partition.{name}"])) for name in columns)
        groups[values].append(uri)
    return dict(groups)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _without(schema: StructType, names: Mapping[str, object]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType([field for field in schema.fields if field.name not in names])


def _with_values(rows: DataFrame, values: tuple[tuple[str, str | None], ...]) -> DataFrame:
    from pyspark.sql import functions as f

    for name, value in values:
        rows = rows.withColumn(name, f.lit(value))
    return rows


def _iceberg(
    session: SparkSession, name: str, catalogs: Mapping[str, Mapping[str, Scalar]]
) -> DataFrame:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog_name, _, identifier = name.partition(".")
    properties = {key: value.text for key, value in catalogs.get(catalog_name, {}).items()}
    try:
        table = load_catalog(catalog_name, **properties).load_table(identifier)
    except ValueError as error:
        raise UnreadableTable(f"the Iceberg catalog {catalog_name} is not known: {error}") from None
    except NoSuchTableError as error:
        raise UnreadableTable(str(error)) from None
    tasks = list(table.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise UnreadableTable(f"{name} has delete files, which cannot be read here")
    schema = spark_schema(table.schema().as_arrow())
    if not tasks:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).parquet(*(task.file.file_path for task in tasks))
