"""Loads whose workers write: the Python process that decoded records writes them as Parquet.

Rows that Spark's own writer writes go from Python to Java and there from columns to rows to
columns, which takes most of the time of a raw load. Here only names of files cross.

A worker writes to a directory where no reader looks. The driver moves the files of a batch to
those of the table and lists them in the sink's log; what other attempts at the same tasks left
is removed. `direct_writing` alone decides which loads do so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.state.storage import Storage, local_path
from ottla_spark.loads.targets.address import ValueFormat
from ottla_spark.loads.targets.parquet import ParquetTable
from ottla_spark.loads.targets.table_writer import RECORDS, Added, Batch, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from pyspark_ottla.file_writing import FileWriting

CODEC_SETTING = "spark.sql.parquet.compression.codec"
OLD_LISTS_SETTING = "spark.sql.parquet.writeLegacyFormat"
WRITER_SETTINGS = "parquet."


def direct_writing(spark: SparkSession, options: LoadOptions, table: Table) -> DirectWriting | None:
    """How workers write the files of this load; None where Spark's writer does."""
    from pyspark_ottla.file_writing import FileWriting
    from pyspark_ottla.files_source import FilesSource

    if not isinstance(table, ParquetTable):
        return None
    storage = Storage(spark)
    incoming = storage.canonical(table.incoming)
    session = {name: str(spark.conf.get(name)) for name in (CODEC_SETTING, OLD_LISTS_SETTING)}
    if not may_write_directly(options, incoming, session | storage.settings(WRITER_SETTINGS)):
        return None
    spark.dataSource.register(FilesSource)
    place = local_path(incoming)
    assert place is not None
    codec = session[CODEC_SETTING].lower()
    return DirectWriting(
        table, FileWriting(place, f"{place}/rows-a-file", codec, options.target_file_size)
    )


def may_write_directly(options: LoadOptions, place: str, settings: Mapping[str, str]) -> bool:
    """Whether the workers of a load into a Parquet table write its files.

    They do where records go as they are to one directory of files that all machines see by the
    same path, unless `settings` want of Parquet what only Spark's writer does.
    """
    from pyspark_ottla.file_writing import CODECS

    return (
        options.format is ValueFormat.RAW
        and not options.partition_by
        and place.startswith("file:")
        and settings[CODEC_SETTING].lower() in CODECS
        and settings[OLD_LISTS_SETTING] == "false"
        and not any(name.startswith(WRITER_SETTINGS) for name in settings)
    )


class DirectWriting:
    """The files of a table's workers."""

    def __init__(self, table: ParquetTable, writing: FileWriting) -> None:
        self._table = table
        self._writing = writing

    def reader(self, spark: SparkSession) -> DataStreamReader:
        """A reader of streams whose rows are files."""
        from pyspark_ottla.files_source import NAME

        return spark.readStream.format(NAME).options(**self._writing.option())

    def add(self, batch: Batch, files: DataFrame) -> Added:
        """Let the workers write a batch, then make its files part of the table in one commit."""
        found = files.collect()  # once: this is what writes
        self._table.add_files(batch, {file.name: file.size for file in found})
        size = sum(file.size for file in found)
        return Added(len(found), size, {RECORDS: sum(file.rows for file in found)})

    def expect(self, rows_a_file: int) -> None:
        """Plan batches from now on for files with so many rows; 0 while that is not known."""
        if rows_a_file:
            self._writing.note_rows_a_file(rows_a_file)
