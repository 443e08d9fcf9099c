"""Writes Arrow batches of records to Parquet files, in the worker that decoded them.

The files look like those of Spark's own writer: the same names, types and nullability, and in the
footer Spark's schema and version, from which Spark knows how timestamps were written. Topics,
partitions and keys are dictionary encoded, offsets and timestamps are delta encoded. Values are
written plain: they seldom repeat, and a dictionary would cost a quarter of the time.

A file is written row group by row group and closed at about the target size. At most one row
group of rows is kept in memory. At the end all files of a task exist, or none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from pyspark_ottla.parquet.file_options import CODECS, FileWriting

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_BYTES: Final = 64 << 20
GROUP_ROWS: Final = 1 << 20
_DICTIONARIES: Final = ("key", "topic", "partition", "timestampType")
_DIFFERENCES: Final = ("offset", "timestamp")
_NO_STATISTICS: Final = frozenset({"value", "headers"})
_SPARK_SCHEMA: Final = "org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION: Final = "org.apache.spark.version"


class WrittenFile(NamedTuple):
    """A written file, in the directory of the load."""

    name: str
    size: int
    rows: int


def write_files(
    batches: Iterator[pa.RecordBatch], names: Sequence[str], writing: FileWriting
) -> list[WrittenFile]:
    """Write every row. Without rows there is no file. If this fails, remove all files."""
    files = _Files(names, writing)
    try:
        for batch in batches:
            files.add(batch)
        return files.finish()
    except BaseException:
        files.remove()
        raise


class _Files:
    """The files of one task. At most one is open."""

    def __init__(self, names: Sequence[str], writing: FileWriting) -> None:
        os.makedirs(writing.directory, exist_ok=True)
        self._names = names
        self._writing = writing
        self._attempt = uuid4()  # makes names unique among tasks and their attempts
        self._group_bytes = min(GROUP_BYTES, writing.target_file_size)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._held_rows = 0
        self._open: _OpenFile | None = None
        self._done: list[WrittenFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Slice it if it is larger than a row group."""
        rows = -(-batch.num_rows // max(1, -(-batch.nbytes // self._group_bytes)))
        for start in range(0, batch.num_rows, max(1, rows)):
            self._hold(batch.slice(start, rows))

    def _hold(self, batch: pa.RecordBatch) -> None:
        bytes_then = self._held_bytes + batch.nbytes
        rows_then = self._held_rows + batch.num_rows
        if self._held and (bytes_then > self._group_bytes or rows_then > GROUP_ROWS):
            self._write_group()
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        self._held_rows += batch.num_rows

    def finish(self) -> list[WrittenFile]:
        if self._held:
            self._write_group()
        self._end_file()
        return self._done

    def remove(self) -> None:
        """Remove all files of the task."""
        names = [file.name for file in self._done]
        if self._open is not None:
            self._open.abandon()
            names.append(self._open.name)
        for name in names:
            _unlink(os.path.join(self._writing.directory, name))

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._open is None:
            name = self._writing.file_name(f"{self._attempt}-{len(self._done):05}")
            self._open = _OpenFile(name, self._held[0].schema, self._names, self._writing)
        size = self._open.write(pa.Table.from_batches(self._held), GROUP_ROWS)
        self._held, self._held_bytes, self._held_rows = [], 0, 0
        if self._open.size + size / 2 > self._writing.target_file_size:
            self._end_file()

    def _end_file(self) -> None:
        if self._open is not None:
            self._done.append(self._open.close())
            self._open = None


class _OpenFile:
    """A file that is being written."""

    def __init__(
        self, name: str, schema: pa.Schema, names: Sequence[str], writing: FileWriting
    ) -> None:
        import pyarrow as pa

        self.name = name
        self.size = 0
        self._rows = 0
        self._path = os.path.join(writing.directory, name)
        self._sink: pa.NativeFile = pa.OSFile(self._path, "wb")
        self._writer = _parquet_writer(self._sink, schema, names, writing)

    def write(self, rows: pa.Table, group_rows: int) -> int:
        """Write a row group. Return its size in bytes."""
        before = self.size
        self._writer.write_table(rows, group_rows)
        self._rows += rows.num_rows
        self.size = self._sink.tell()
        return self.size - before

    def close(self) -> WrittenFile:
        self._writer.close()
        self._sink.close()
        return WrittenFile(self.name, os.stat(self._path).st_size, self._rows)

    def abandon(self) -> None:
        """Close the file without a footer. It is not a valid Parquet file."""
        self._sink.close()


def _parquet_writer(
    sink: pa.NativeFile, schema: pa.Schema, names: Sequence[str], writing: FileWriting
) -> pq.ParquetWriter:
    import pyarrow.parquet as pq

    codec = CODECS[writing.codec]
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression=codec.arrow_name,
        compression_level=codec.level,
        use_dictionary=[name for name in _DICTIONARIES if name in names],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _DIFFERENCES if name in names},
        write_statistics=[name for name in names if name not in _NO_STATISTICS],
        write_page_index=True,
        store_schema=False,
    )
    writer.add_key_value_metadata(_spark_metadata(names))
    return writer


def _spark_metadata(names: Sequence[str]) -> dict[str, str]:
    from pyspark import __version__

    from pyspark_ottla.schema import schema

    return {_SPARK_SCHEMA: schema(tuple(names)).json(), _SPARK_VERSION: __version__}


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # somebody else has removed it already
