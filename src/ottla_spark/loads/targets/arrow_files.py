"""Parquet files in object stores. Spark's Python workers write them with Arrow, without Java.

Spark's own writer needs Java's library for the object store. Here a task gets its rows as Arrow
batches and returns the names and sizes of its files. Files of failed attempts are not in the
answers, and the driver removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from ottla_spark.loads.state.object_store import access, locate, use_access

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_FOLDER = "_ottla_folder_"
ROW_GROUP_BYTES = 64 << 20
"""How many bytes of rows a task keeps before it writes them."""
MOST_OPEN_FILES = 50
_ANSWER = "name string, size long"


def write_arrow_files(
    rows: DataFrame, directory: str, partitions: Sequence[str], most_rows_a_file: int
) -> dict[str, int]:
    """Write rows to a directory of an object store; return the sizes of the files by name."""
    from pyspark.sql import functions as F

    texts = [F.col(name).cast("string").alias(f"{_FOLDER}{n}") for n, name in enumerate(partitions)]
    files = rows.select("*", *texts).drop(*partitions)
    answers = files.mapInArrow(_task(directory, list(partitions), most_rows_a_file), _ANSWER)
    return {row["name"]: row["size"] for row in answers.collect()}


def _task(
    directory: str, partitions: list[str], most_rows_a_file: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    variables = access()

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        use_access(variables)
        files = TaskFiles(directory, partitions, most_rows_a_file)
        for batch in batches:
            files.add(pa.Table.from_batches([batch]))
        names, sizes = files.finish()
        yield pa.RecordBatch.from_arrays(
            [pa.array(names, pa.string()), pa.array(sizes, pa.int64())], names=["name", "size"]
        )

    return write


@dataclass
class _OpenFile:
    """A file, its name, and rows that are not written yet."""

    name: str
    writer: Any = None
    rows: int = 0
    waiting: list[Any] = field(default_factory=list)


class TaskFiles:
    """The files of one task: one at a time for each combination of partition values.

    Rows wait in memory until they make a large row group.
    """

    def __init__(self, directory: str, partitions: Sequence[str], most_rows_a_file: int) -> None:
        self._directory = directory
        self._partitions = partitions
        self._most_rows = most_rows_a_file
        self._open: dict[str, _OpenFile] = {}
        self._waiting_bytes = 0
        self._done: list[str] = []

    def add(self, rows: Any) -> None:
        """Take the rows of an Arrow table."""
        folders = [f"{_FOLDER}{n}" for n in range(len(self._partitions))]
        if not folders:
            self._take("", rows)
            return
        kept = rows.drop_columns(folders)
        for values in rows.select(folders).group_by(folders).aggregate([]).to_pylist():
            chosen = [values[name] for name in folders]
            self._take(self._folder(chosen), kept.filter(_equal(rows, folders, chosen)))

    def finish(self) -> tuple[list[str], list[int]]:
        """Close all files; return their names and sizes."""
        for folder in list(self._open):
            self._close(folder)
        system, base = locate(self._directory)
        sizes = [system.get_file_info(f"{base}/{name}").size for name in self._done]
        return self._done, sizes

    def _folder(self, values: Sequence[str | None]) -> str:
        parts = [
            f"{quote(name, safe='')}={NULL_PARTITION if value is None else quote(value, safe='')}"
            for name, value in zip(self._partitions, values, strict=True)
        ]
        return "/".join(parts) + "/"

    def _take(self, folder: str, rows: Any) -> None:
        if not rows.num_rows:
            return
        if folder not in self._open:
            if len(self._open) >= MOST_OPEN_FILES:
                self._close(next(iter(self._open)))
            self._open[folder] = _OpenFile(f"{folder}part-{uuid4().hex}.parquet")
        file = self._open[folder]
        file.waiting.append(rows)
        file.rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._most_rows and file.rows >= self._most_rows:
            self._close(folder)
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            for each in self._open.values():
                self._write(each)

    def _write(self, file: _OpenFile) -> None:
        """Write the rows that wait as a row group."""
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        if not file.waiting:
            return
        rows = pa.concat_tables(file.waiting)
        file.waiting = []
        self._waiting_bytes -= rows.nbytes
        if file.writer is None:
            system, base = locate(self._directory)
            file.writer = ParquetWriter(f"{base}/{file.name}", rows.schema, filesystem=system)
        file.writer.write_table(rows)

    def _close(self, folder: str) -> None:
        file = self._open.pop(folder)
        self._write(file)
        file.writer.close()
        self._done.append(file.name)


def _equal(rows: Any, folders: Sequence[str], values: Sequence[str | None]) -> Any:
    import pyarrow.compute as pc

    mask = None
    for name, value in zip(folders, values, strict=True):
        column = rows.column(name)
        same = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
        mask = same if mask is None else pc.and_(mask, same)
    return mask
