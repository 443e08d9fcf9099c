"""The log of Spark's file sink (`_spark_metadata`), which lists the files of a Parquet table.

A log file is named after its batch; `N.compact` lists everything up to batch N. The first line is
`v1`, each other line is the JSON of one file. Spark writes the log. This module reads it, asks
Spark to append to it, and replaces whole log files after a compaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla_spark.loads.errors import LoadError
from ottla_spark.loads.state.storage import HadoopStorage, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIRECTORY = "_spark_metadata"
COMPACT = ".compact"
VERSION = "v1"


@dataclass(frozen=True)
class SinkFile:
    """One file of the table. `path` is a percent-encoded URI, `line` its line in the log."""

    path: str
    size: int
    modified_ms: int
    line: str


class LogName(NamedTuple):
    """The name of a log file. A `compact` one repeats everything before it."""

    batch: int
    compact: bool

    def __str__(self) -> str:
        return f"{self.batch}{COMPACT if self.compact else ''}"


class SinkLog:
    """The log of the table in the directory `table`."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage = storage
        self._directory = f"{table}/{DIRECTORY}"

    def names(self, until: int | None = None) -> list[LogName]:
        """Return the log files that list the table: the last compact one and all after it.

        With `until`, return those that list the table as it was after that batch.
        """
        found = [name for name in self._all_names() if until is None or name.batch <= until]
        compact = max((name.batch for name in found if name.compact), default=-1)
        return [name for name in found if name.batch > compact or name == (compact, True)]

    def last_batch(self) -> int | None:
        """Return the last batch in the log."""
        return max((name.batch for name in self.names()), default=None)

    def read(self, name: LogName) -> list[SinkFile]:
        """Return the files that one log file lists."""
        path = f"{self._directory}/{name}"
        version, *lines = self._storage.read_text(path).splitlines()
        if version != VERSION:
            raise LoadError(f"{path} has version {version!r}: Ottla reads only {VERSION}")
        return [_parse(line) for line in lines if line]

    def files(self) -> list[SinkFile]:
        """Return all files of the table."""
        return self._files_until(None)

    def added_by(self, batch: int) -> list[SinkFile]:
        """Return the files that this batch, the last one, added."""
        name = next(name for name in self.names() if name.batch == batch)
        if not name.compact:
            return self.read(name)
        before = {file.path for file in self._files_until(batch - 1)}
        return [file for file in self.read(name) if file.path not in before]

    def append(self, spark: SparkSession, batch: int, paths: Sequence[str]) -> None:
        """Let Spark add these files as one batch; raise LoadError if the log has the batch."""
        jvm: Any = spark._jvm
        sinks = jvm.org.apache.spark.sql.execution.streaming.sinks
        context = spark.sparkContext
        assert context._gateway is not None
        storage = HadoopStorage(spark)
        listed = context._gateway.new_array(sinks.SinkFileStatus, len(paths))
        for place, path in enumerate(paths):
            listed[place] = sinks.SinkFileStatus.apply(storage.status(path))
        log = sinks.FileStreamSinkLog(
            sinks.FileStreamSinkLog.VERSION(),
            spark._jsparkSession,
            self._directory,
            jvm.scala.Option.empty(),
        )
        if not log.add(batch, listed):
            raise LoadError(f"{self._directory} has batch {batch} already: another load wrote it")

    def fill_gaps(self, batch: int, interval: int) -> None:
        """Add the log files that Spark reads to add `batch` and to read the table after it.

        Spark expects a log file for every batch, but batches that added nothing may have none.
        `interval` tells which log files are compact ones.
        """
        there = set(self._all_names())
        for name in _needed_before(batch, interval):
            if name in there:
                continue
            files = self._files_until(name.batch) if name.compact else []
            self._storage.write_text(f"{self._directory}/{name}", _log_text(files))

    def remove(self) -> None:
        """Remove the whole log."""
        self._storage.remove(self._directory)

    @contextmanager
    def replacement(self, name: LogName, files: list[SinkFile]) -> Iterator[None]:
        """Write a log file that lists these files; at the end rename it to its name.

        If the block raises an exception, the old log file stays.
        """
        assert isinstance(self._storage, HadoopStorage), "only Spark replaces log files"
        with self._storage.replacement(f"{self._directory}/{name}", _log_text(files)):
            yield

    def _all_names(self) -> list[LogName]:
        """Return all log files by batch, also those that a compact one repeats."""
        return sorted(
            LogName(int(name.removesuffix(COMPACT)), name.endswith(COMPACT))
            for name in self._storage.children(self._directory)
            if name.removesuffix(COMPACT).isdigit()
        )

    def _files_until(self, batch: int | None) -> list[SinkFile]:
        """Return the files of the table as it was after a batch, or as it is now."""
        return [file for name in self.names(batch) for file in self.read(name)]


def _needed_before(batch: int, interval: int) -> list[LogName]:
    """Return the log files that Spark needs before it adds a batch, the oldest first.

    These are all since the last compact one, and the compact one before that: Spark takes the
    distance of the last two for the interval.
    """
    last_compact = batch // interval * interval - 1
    batches = [last_compact - interval, *range(last_compact, batch)]
    return [LogName(each, (each + 1) % interval == 0) for each in batches if each >= 0]


def _log_text(files: Sequence[SinkFile]) -> str:
    return "\n".join([VERSION, *(file.line for file in files)])


def _parse(line: str) -> SinkFile:
    content = json.loads(line)
    return SinkFile(content["path"], content["size"], content["modificationTime"], line)


def sink_file(path: str, size: int, modified_ms: int, like: SinkFile) -> SinkFile:
    """Return the entry of a new file, with the other attributes of an existing entry."""
    content = json.loads(like.line) | {"path": path, "size": size, "modificationTime": modified_ms}
    line = json.dumps(content, separators=(",", ":"))
    return SinkFile(path, size, modified_ms, line)
