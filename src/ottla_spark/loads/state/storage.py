"""Files on any file system that Spark can write, through Hadoop's API.

Paths are text. `local_path` gives the path for Python, if the file is on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoredFile(NamedTuple):
    """A file: its URI as Hadoop writes it (not percent-encoded), its size and its time."""

    uri: str
    size: int
    modified_ms: int


class Storage:
    """The file systems of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        # Without this setting Spark picks a class that replaces files atomically everywhere.
        self._conf.unset("spark.sql.streaming.checkpointFileManagerClass")

    def settings(self, prefix: str) -> dict[str, str]:
        """Return Hadoop's settings whose names start with `prefix`."""
        found = self._conf.getPropsWithPrefix(prefix)
        return {prefix + name: str(found[name]) for name in found}

    def canonical(self, path: str) -> str:
        """Return a path, or a percent-encoded URI, in the form in which files are listed."""
        if "://" in path:
            path = self._path(self._jvm.java.net.URI(path)).toString()
        return str(self._file_system(path).makeQualified(self._path(path)).toString())

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return bool(self._file_system(path).exists(self._path(path)))

    def status(self, path: str) -> Any:
        """Return Hadoop's status of a file."""
        return self._file_system(path).getFileStatus(self._path(path))

    def children(self, path: str) -> list[str]:
        """Return the names in a directory; empty if it does not exist."""
        if not self.exists(path):
            return []
        return [status.getPath().getName() for status in self._statuses(path)]

    def files(self, path: str) -> list[StoredFile]:
        """Return all files below a directory."""
        return list(self._walk(path)) if self.exists(path) else []

    def data_files(self, path: str) -> list[StoredFile]:
        """Return the files below a directory that readers of tables see: no hidden names."""
        return list(self._walk(path, hidden=False)) if self.exists(path) else []

    def read_text(self, path: str) -> str:
        """Return the content of a file."""
        stream = self._file_system(path).open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write or replace a file atomically."""
        self.make_directory(path.rpartition("/")[0])
        stream = self._checkpoint_files(path).createAtomic(self._path(path), True)
        try:
            stream.write(bytearray(text.encode()))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents."""
        self._file_system(path).mkdirs(self._path(path))

    def move(self, source: str, destination: str) -> None:
        """Rename a file within a file system; create the directory if needed."""
        files = self._file_system(source)
        files.mkdirs(self._path(destination).getParent())
        if not files.rename(self._path(source), self._path(destination)):
            raise OSError(f"cannot move {source} to {destination}")

    def remove(self, path: str) -> None:
        """Remove a file or a whole directory; do nothing if it does not exist."""
        self._file_system(path).delete(self._path(path), True)

    def _checkpoint_files(self, path: str) -> Any:
        streaming = self._jvm.org.apache.spark.sql.execution.streaming
        return streaming.checkpointing.CheckpointFileManager.create(
            self._path(path).getParent(), self._conf
        )

    def _walk(self, path: str, *, hidden: bool = True) -> Iterator[StoredFile]:
        for status in self._statuses(path):
            name = status.getPath().getName()
            if not hidden and name.startswith((".", "_")) and "=" not in name:
                continue
            if status.isDirectory():
                yield from self._walk(status.getPath().toString(), hidden=hidden)
            else:
                uri = status.getPath().toString()
                yield StoredFile(uri, status.getLen(), status.getModificationTime())

    def _statuses(self, path: str) -> list[Any]:
        return list(self._file_system(path).listStatus(self._path(path)))

    def _file_system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)

    def _path(self, path: Any) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)


def local_path(path: str) -> str | None:
    """Return the path on this machine; None if the file is elsewhere."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path if os.path.isabs(path) else None
