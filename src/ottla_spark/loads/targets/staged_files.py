"""Parquet files that executors wrote and that a table has not committed yet.

Each attempt writes to a directory of its own. After the job the directory has exactly the rows of
the attempt, and the directory of a killed attempt can be found by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import uuid4

from ottla_spark.loads.errors import LoadError
from ottla_spark.loads.state.object_store import is_object_store, locate
from ottla_spark.loads.state.storage import Storage, local_path
from ottla_spark.loads.targets.arrow_files import NULL_PARTITION, write_arrow_files
from ottla_spark.loads.targets.table_writer import MISFITS, RECORDS, Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PREFIX_LENGTH = 8
WRITER_OPTIONS = {"parquet.page.size.row.check.min": "1", "parquet.memory.pool.ratio": "0.5"}
"""Bounds for the memory of Spark's Parquet writer.

It looks at the size of a row group after 100 rows, whatever their size: with rows of ten megabytes
that is a gigabyte. Here it looks after the first row, and then as often as the size of rows asks
for. All row groups together may take half of Java's memory, instead of nearly all of it.
"""


@dataclass(frozen=True)
class StagedFile:
    """A Parquet file with rows: its footer, and its path relative to the directory."""

    uri: str
    relative: str
    size: int
    footer: Any

    @property
    def partition(self) -> dict[str, str | None]:
        """The values of the partition columns, from the names of its directories."""
        pairs = [part.partition("=") for part in self.relative.split("/")[:-1]]
        return {
            unquote(name): None if value == NULL_PARTITION else unquote(value)
            for name, _, value in pairs
        }


class Staging:
    """The directories of a load's attempts, below `root`."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._root = root

    def new_attempt(self, batch: Batch) -> str:
        """Return the path of a directory that nothing else writes to."""
        return f"{self._root}/{self._prefix(batch)}{batch.number}-{uuid4().hex[:8]}"

    def write(
        self, rows: DataFrame, directory: str, partitions: Sequence[str], most_rows_a_file: int
    ) -> list[StagedFile]:
        """Write rows as Parquet; return the files that have rows."""
        if is_object_store(directory):
            written = write_arrow_files(rows, directory, partitions, most_rows_a_file)
            self._remove_others(directory, written)
            return self._files(directory)
        writer = rows.write.mode("error").option("maxRecordsPerFile", most_rows_a_file)
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer = writer.options(**WRITER_OPTIONS)
        (writer.partitionBy(*partitions) if partitions else writer).parquet(directory)
        return self._files(directory)

    def _remove_others(self, directory: str, written: Mapping[str, int]) -> None:
        """Remove the files of failed or repeated tasks."""
        base = self._storage.canonical(directory)
        for stored in self._storage.files(directory):
            if stored.uri.removeprefix(base).lstrip("/") not in written:
                self._storage.remove(stored.uri)

    def clean(self, batch: Batch) -> int:
        """Remove attempts at this batch and later ones; return how many."""
        removed = 0
        for name in self._storage.children(self._root):
            number = name.removeprefix(self._prefix(batch)).partition("-")[0]
            if name.startswith(self._prefix(batch)) and int(number) >= batch.number:
                self._storage.remove(f"{self._root}/{name}")
                removed += 1
        return removed

    @staticmethod
    def _prefix(batch: Batch) -> str:
        return f"{batch.query_id[:_PREFIX_LENGTH]}-"

    def _files(self, directory: str) -> list[StagedFile]:
        base = self._storage.canonical(directory)
        found = []
        for stored in self._storage.data_files(directory):
            footer = read_footer(stored.uri)
            if not footer.num_rows:
                self._storage.remove(stored.uri)
                continue
            relative = stored.uri.removeprefix(base).lstrip("/")
            found.append(StagedFile(stored.uri, relative, stored.size, footer))
        return found


def check_rows(files: Sequence[StagedFile], measured: Mapping[str, Any]) -> None:
    """Raise LoadError, before the commit, unless the files have every row that was written."""
    there = sum(file.footer.num_rows for file in files)
    wanted = measured[RECORDS] - measured.get(MISFITS, 0)
    if there != wanted:
        raise LoadError(
            f"the load stopped: executors wrote {wanted} rows, but {there} are where the table is."
            " Put the table where the driver and the executors see the same files"
        )


def read_footer(uri: str) -> Any:
    """Return the footer of a Parquet file."""
    import pyarrow.parquet as pq

    file_system, path = _locate(uri)
    return pq.read_metadata(path, filesystem=file_system)


def staged_rows(files: Sequence[StagedFile]) -> Any:
    """Return the rows of at least one file as an Arrow dataset."""
    import pyarrow.dataset as ds

    places = [_locate(file.uri) for file in files]
    return ds.dataset([path for _, path in places], filesystem=places[0][0], format="parquet")


def _locate(uri: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem, LocalFileSystem

    if is_object_store(uri):
        return locate(uri)
    local = local_path(uri)
    return FileSystem.from_uri(uri) if local is None else (LocalFileSystem(), local)
