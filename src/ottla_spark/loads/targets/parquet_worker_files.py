"""Parquet files that Python workers write, the same workers that decode the records (ADR 8).

With Spark's own writer, rows go from Python to Java and there from columns to rows and back to
columns. That takes most of the time of a raw load. Here only file names go to Java.

Workers write to a directory that readers ignore. The driver moves the files of a batch into the
table and lists them in the sink's log. It removes files of other attempts at the same tasks.
`can_use_worker_files` decides which loads work this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla_spark.loads.options.value_format import ValueFormat
from ottla_spark.loads.state.storage import HadoopStorage, local_path
from ottla_spark.loads.targets.table_writer import RECORDS, Added, Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from ottla_spark.loads.options.load_options import LoadOptions
    from ottla_spark.loads.targets.parquet import ParquetTableWriter
    from pyspark_ottla.parquet.file_options import FileWriting

CODEC_SETTING = "spark.sql.parquet.compression.codec"
OLD_LISTS_SETTING = "spark.sql.parquet.writeLegacyFormat"
WRITER_SETTINGS = "parquet."


def worker_files(
    spark: SparkSession, options: LoadOptions, table: ParquetTableWriter
) -> ParquetWorkerFiles | None:
    """Return how workers write the files of this load; None if Spark's writer does."""
    from pyspark_ottla.parquet.file_options import FileWriting
    from pyspark_ottla.parquet.files_source import FilesSource

    storage = HadoopStorage(spark)
    incoming = storage.canonical(table.incoming)
    session = {name: str(spark.conf.get(name)) for name in (CODEC_SETTING, OLD_LISTS_SETTING)}
    if not can_use_worker_files(options, incoming, session | storage.settings(WRITER_SETTINGS)):
        return None
    spark.dataSource.register(FilesSource)
    place = local_path(incoming)
    assert place is not None
    codec = session[CODEC_SETTING].lower()
    return ParquetWorkerFiles(
        table, FileWriting(place, f"{place}/rows-a-file", codec, options.target_file_size)
    )


def can_use_worker_files(options: LoadOptions, place: str, settings: Mapping[str, str]) -> bool:
    """Return whether workers write the files of a load into a Parquet table.

    They do for raw records in one directory that all machines see by the same path, unless
    `settings` ask for something that only Spark's writer can do.
    """
    from pyspark_ottla.parquet.file_options import CODECS

    return (
        options.format is ValueFormat.RAW
        and not options.partition_by
        and place.startswith("file:")
        and settings[CODEC_SETTING].lower() in CODECS
        and settings[OLD_LISTS_SETTING] == "false"
        and not any(name.startswith(WRITER_SETTINGS) for name in settings)
    )


class ParquetWorkerFiles:
    """The files that workers write for one Parquet table."""

    def __init__(self, table: ParquetTableWriter, writing: FileWriting) -> None:
        self._table = table
        self._writing = writing

    def reader(self, spark: SparkSession) -> DataStreamReader:
        """Return a stream reader whose rows are the files that the workers wrote."""
        from pyspark_ottla.parquet.files_source import NAME

        return spark.readStream.format(NAME).options(**self._writing.option())

    def add(self, batch: Batch, files: DataFrame) -> Added:
        """Run a batch and add its files to the table in one commit."""
        found = files.collect()  # only once, because this makes the workers write
        self._table.add_files(batch, {file.name: file.size for file in found})
        size = sum(file.size for file in found)
        return Added(len(found), size, {RECORDS: sum(file.rows for file in found)})

    def set_rows_per_file(self, rows: int) -> None:
        """Set how many rows a file of the next batches should have; 0 if that is not known."""
        if rows:
            self._writing.note_rows_a_file(rows)
