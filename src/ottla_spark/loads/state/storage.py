"""Files of tables and loads. Paths are text.

`HadoopStorage` has the files of every file system that Spark can write. `ArrowStorage` has those of
object stores, and needs no Java. `local_path` gives the path for Python, if the file is on this
machine.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from ottla_spark.loads.state.object_store import is_object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoredFile(NamedTuple):
    """A file: its URI as Hadoop writes it (not percent-encoded), its size and its time."""

    uri: str
    size: int
    modified_ms: int


class Storage(ABC):
    """Reads and writes files."""

    @abstractmethod
    def canonical(self, path: str) -> str:
        """Return a path in the form in which files are listed."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the names in a directory; empty if it does not exist."""

    @abstractmethod
    def files(self, path: str) -> list[StoredFile]:
        """Return all files below a directory."""

    @abstractmethod
    def data_files(self, path: str) -> list[StoredFile]:
        """Return the files below a directory that readers of tables see: no hidden names."""

    @abstractmethod
    def read_text(self, path: str) -> str:
        """Return the content of a file."""

    @abstractmethod
    def write_text(self, path: str, text: str) -> None:
        """Write or replace a file atomically."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Create a directory and its parents."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file or a whole directory; do nothing if it does not exist."""


def storage_of(spark: SparkSession | None, path: str) -> Storage:
    """Return the storage for a path. Without a session, it reads files of this machine too."""
    from ottla_spark.loads.state.arrow_storage import ArrowStorage

    if spark is None or is_object_store(path):
        return ArrowStorage()
    return HadoopStorage(spark)


class HadoopStorage(Storage):
    """The file systems of one session, through Hadoop's API."""

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
        with self.replacement(path, text):
            pass

    @contextmanager
    def replacement(self, path: str, text: str) -> Iterator[None]:
        """Write a file under a temporary name; at the end of the block rename it to `path`.

        If the block raises an exception, `path` stays as it is.
        """
        self.make_directory(path.rpartition("/")[0])
        stream = self._checkpoint_files(path).createAtomic(self._path(path), True)
        try:
            stream.write(bytearray(text.encode()))
            yield
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def create_text(self, path: str, text: str) -> bool:
        """Write a new file atomically; return False, and change nothing, if it exists."""
        if self.exists(path):
            return False
        self.make_directory(path.rpartition("/")[0])
        local = local_path(path)
        if local is not None:
            return _create_local(local, text)
        from py4j.protocol import Py4JJavaError

        try:
            stream = self._checkpoint_files(path).createAtomic(self._path(path), False)
            stream.write(bytearray(text.encode()))
            stream.close()
        except Py4JJavaError:
            if self.exists(path):
                return False
            raise
        return True

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


def _create_local(path: str, text: str) -> bool:
    """Write a file under another name and link it: a link does not replace a file."""
    fresh = f"{path}.{uuid4().hex[:8]}"
    Path(fresh).write_text(text)
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(fresh)
    return True


def local_path(path: str) -> str | None:
    """Return the path on this machine; None if the file is elsewhere."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path if os.path.isabs(path) else None
