"""Files without Java, through Arrow: of this machine, and of object stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla_spark.loads.state.object_store import SCHEME, is_object_store, locate
from ottla_spark.loads.state.storage import Storage, StoredFile, local_path

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


class ArrowStorage(Storage):
    """The files of this machine, and of object stores."""

    def canonical(self, path: str) -> str:
        """Return a path in the form in which files are listed."""
        local = local_path(path)
        return path.rstrip("/") if local is None else f"file:{local}"

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        from pyarrow.fs import FileType

        files, place = _locate(path)
        return bool(files.get_file_info(place).type != FileType.NotFound)

    def children(self, path: str) -> list[str]:
        """Return the names in a directory; empty if it does not exist."""
        return [info.base_name for info in _listed(path, recursive=False)]

    def files(self, path: str) -> list[StoredFile]:
        """Return all files below a directory."""
        return list(self._walk(path))

    def data_files(self, path: str) -> list[StoredFile]:
        """Return the files below a directory that readers of tables see: no hidden names."""
        return list(self._walk(path, hidden=False))

    def read_text(self, path: str) -> str:
        """Return the content of a file."""
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a file."""
        files, place = _locate(path)
        with files.open_input_stream(place) as stream:
            return bytes(stream.read())

    def write_text(self, path: str, text: str) -> None:
        """Write or replace a file. In an object store this is atomic."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write or replace a file. In an object store this is atomic."""
        files, place = _locate(path)
        self.make_directory(path.rpartition("/")[0])
        with files.open_output_stream(place) as stream:
            stream.write(content)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents. An object store has none."""
        local = local_path(path)
        if local is not None:
            os.makedirs(local, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file or a whole directory; do nothing if it does not exist."""
        from pyarrow.fs import FileType

        files, place = _locate(path)
        kind = files.get_file_info(place).type
        if kind == FileType.Directory:
            files.delete_dir(place)
        elif kind == FileType.File:
            files.delete_file(place)

    def _walk(self, path: str, *, hidden: bool = True) -> Iterator[StoredFile]:
        _, base = _locate(path)
        prefix = SCHEME if is_object_store(path) else "file:"
        for info in _listed(path, recursive=True):
            parts = info.path.removeprefix(base).strip("/").split("/")
            if info.is_file and (hidden or not any(_is_hidden(part) for part in parts)):
                modified_ms = (info.mtime_ns or 0) // 1_000_000
                yield StoredFile(prefix + info.path, info.size, modified_ms)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_")) and "=" not in name


def _listed(path: str, *, recursive: bool) -> list[FileInfo]:
    from pyarrow.fs import FileSelector

    files, place = _locate(path)
    found: list[FileInfo] = files.get_file_info(
        FileSelector(place, allow_not_found=True, recursive=recursive)
    )
    return found


def _locate(path: str) -> tuple[FileSystem, str]:
    from pyarrow.fs import LocalFileSystem

    local = local_path(path)
    return locate(path) if local is None else (LocalFileSystem(), local)
