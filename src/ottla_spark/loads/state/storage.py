"""Files where Spark keeps them: any file system that this Spark can write, through Hadoop's API.

A path is given as text; `local_path` is the same place for Python where there is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoredFile(NamedTuple):
    """A file: its URI (not percent-encoded, as Hadoop writes it), its size and its age."""

    uri: str
    size: int
    modified_ms: int


class Storage:
    """The file systems of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        # Only Spark's own choice replaces files atomically on every file system.
        self._conf.unset("spark.sql.streaming.checkpointFileManagerClass")

    def settings(self, prefix: str) -> dict[str, str]:
        """Hadoop's settings whose names begin like this."""
        found = self._conf.getPropsWithPrefix(prefix)
        return {prefix + name: str(found[name]) for name in found}

    def canonical(self, path: str) -> str:
        """The one form of a path or of a percent-encoded URI that files are listed with."""
        if "://" in path:
            path = self._path(self._jvm.java.net.URI(path)).toString()
        return str(self._file_system(path).makeQualified(self._path(path)).toString())

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return bool(self._file_system(path).exists(self._path(path)))

    def status(self, path: str) -> Any:
        """What Hadoop says about a file."""
        return self._file_system(path).getFileStatus(self._path(path))

    def children(self, path: str) -> list[str]:
        """The names in a directory; none where there is no directory."""
        if not self.exists(path):
            return []
        return [status.getPath().getName() for status in self._statuses(path)]

    def files(self, path: str) -> list[StoredFile]:
        """All files below a directory."""
        return list(self._walk(path)) if self.exists(path) else []

    def data_files(self, path: str) -> list[StoredFile]:
        """The files below a directory that readers of tables look at: no hidden names."""
        return list(self._walk(path, hidden=False)) if self.exists(path) else []

    def read_text(self, path: str) -> str:
        """The content of a file."""
        stream = self._file_system(path).open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Put a file there whole, in place of the one that was there: old or new, never half."""
        self.make_directory(path.rpartition("/")[0])
        stream = self._checkpoint_files(path).createAtomic(self._path(path), True)
        try:
            stream.write(bytearray(text.encode()))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it."""
        self._file_system(path).mkdirs(self._path(path))

    def move(self, source: str, destination: str) -> None:
        """Rename a file within a file system; the directory is made."""
        files = self._file_system(source)
        files.mkdirs(self._path(destination).getParent())
        if not files.rename(self._path(source), self._path(destination)):
            raise OSError(f"cannot move {source} to {destination}")

    def remove(self, path: str) -> None:
        """Remove a file or a directory with everything in it; fine if it is not there."""
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
    """The path for this process, or None when the place is not among this machine's files."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path if os.path.isabs(path) else None
