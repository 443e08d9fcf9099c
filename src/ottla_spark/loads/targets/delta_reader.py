"""Reads a Delta table into Spark without Delta's jar.

delta-rs lists the Parquet files of the current version, and Spark reads them. A table with
deletion vectors or column mapping is refused, because its files alone do not show its rows.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from ottla_spark.loads.targets.target import UnreadableTable

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MAX_PARTITIONS: Final = 500
_BESIDE_FILES: Final = frozenset({"deletionVectors", "columnMapping"})


def read_delta(session: SparkSession, path: str) -> DataFrame:
    """Return the rows of the table's current version."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from pyspark.sql.types import StructType

    try:
        table = DeltaTable(path)
    except DeltaError as error:
        raise UnreadableTable(f"{path} cannot be read as a Delta table: {error}") from None
    unsupported = _BESIDE_FILES & set(table.protocol().reader_features or ())
    if unsupported:
        raise UnreadableTable(f"{path} uses {', '.join(unsupported)}, which Ottla cannot read")
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
    """Return the files of each combination of partition values. The files lack these columns."""
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
