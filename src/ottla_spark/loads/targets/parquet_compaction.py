"""Merges the small files of a Parquet table.

Spark's readers use the sink's log. Other readers list the directory and see every file whose name
does not start with an underscore or a dot. The merged files are therefore written to a hidden
directory. When all are complete, three quick steps follow: the merged files are moved into the
table, the log is replaced by one rename, and the old files are removed.

Between the first and the last of them a listing has rows twice, and no order of steps can avoid
that: a file system cannot replace several names at once. So that nobody counts rows twice, a file
that is not Parquet (MARK) is in each changed directory from before the first step until after the
last. Readers of the directory fail on it, and most show its name, which says why. Two short pauses
let a listing that takes several system calls see the mark too.

A crash before the new log leaves merged files that the log does not list, a crash after it leaves
old files that the log does not list. The next run removes files that the log does not list, the
marks last.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from ottla_spark.loads.state.storage import HadoopStorage
from ottla_spark.loads.targets.parquet_sink_log import LogName, SinkFile, SinkLog, sink_file
from ottla_spark.loads.targets.staged_files import WRITER_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASIDE = "_compact"
"""The hidden directory that merged files are written to."""
MARK = "a-load-is-merging-these-files-read-again.parquet"
"""The file that keeps others from reading a directory while its files are replaced."""
_MARK_TEXT = (
    "This is not a Parquet file. A load is merging the files of this directory, and some rows are"
    " here twice. Read the table again in a second. If this file stays, the load was killed: run it"
    " again.\n"
)
_LISTING_PAUSE_S = 0.05
"""More than a reader needs to list a directory of some thousand files."""


def is_mark(path: str) -> bool:
    """Return whether a file is the mark of a compaction."""
    return path.endswith(f"/{MARK}")


class Merged(NamedTuple):
    """A merged file: where it was written, where it belongs, and its entry in the log."""

    written: str
    place: str
    entry: SinkFile


class ParquetCompaction:
    """Compacts the table in `directory`."""

    def __init__(
        self, spark: SparkSession, storage: HadoopStorage, log: SinkLog, directory: str
    ) -> None:
        self._spark = spark
        self._storage = storage
        self._log = log
        self._directory = directory

    def run(self, target_file_size: int) -> int:
        """Merge the small files that each log file lists; return how many files were replaced."""
        gone = 0
        for name in self._log.names():
            files = self._log.read(name)
            small = self._small(files, target_file_size)
            if small:
                merged = [file for group in small for file in self._merge(group)]
                replaced = {file.path for group in small for file in group}
                self._swap(name, [f for f in files if f.path not in replaced], merged, replaced)
                gone += len(replaced)
        self.clean()
        return gone

    def clean(self) -> None:
        """Remove the hidden directory of this or of a killed compaction."""
        self._storage.remove(f"{self._directory}/{ASIDE}")

    def _swap(
        self, name: LogName, kept: list[SinkFile], merged: list[Merged], replaced: set[str]
    ) -> None:
        """Replace files in the table by merged ones. Everything slow is done before or after."""
        old = [self._storage.canonical(path) for path in replaced]
        with self._marked(sorted({file.place.rpartition("/")[0] for file in merged})):
            with self._log.replacement(name, kept + [file.entry for file in merged]):
                for file in merged:
                    self._storage.move(file.written, file.place)
            for path in old:
                self._storage.remove(path)

    @contextmanager
    def _marked(self, directories: list[str]) -> Iterator[None]:
        """Keep a mark in these directories. If the block fails, the marks stay for the next run."""
        for directory in directories:
            self._storage.create_text(f"{directory}/{MARK}", _MARK_TEXT)
        time.sleep(_LISTING_PAUSE_S)
        yield
        time.sleep(_LISTING_PAUSE_S)
        for directory in directories:
            self._storage.remove(f"{directory}/{MARK}")

    @staticmethod
    def _small(files: list[SinkFile], target_file_size: int) -> list[list[SinkFile]]:
        """Return groups of small files of one directory, each about `target_file_size` in total."""
        by_directory: defaultdict[str, list[SinkFile]] = defaultdict(list)
        for file in files:
            if file.size < target_file_size / 2:
                by_directory[file.path.rpartition("/")[0]].append(file)
        groups = []
        for found in by_directory.values():
            group: list[SinkFile] = []
            for file in found:
                if group and sum(f.size for f in group) + file.size > target_file_size:
                    groups.append(group)
                    group = []
                group.append(file)
            groups.append(group)
        return [group for group in groups if len(group) > 1]

    def _merge(self, group: list[SinkFile]) -> list[Merged]:
        """Write the rows of a group to one file in a hidden directory."""
        aside = f"{self._directory}/{ASIDE}/{uuid4().hex[:8]}"
        paths = [self._storage.canonical(file.path) for file in group]
        rows = self._spark.read.option("mergeSchema", "true").parquet(*paths)
        rows.coalesce(1).write.options(**WRITER_OPTIONS).parquet(aside)
        directory = paths[0].rpartition("/")[0]
        encoded = group[0].path.rpartition("/")[0]
        merged = []
        for stored in self._storage.data_files(aside):
            name = stored.uri.rpartition("/")[2]
            entry = sink_file(f"{encoded}/{name}", stored.size, stored.modified_ms, like=group[0])
            merged.append(Merged(stored.uri, f"{directory}/{name}", entry))
        return merged
