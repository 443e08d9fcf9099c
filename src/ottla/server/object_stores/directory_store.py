"""A directory as an object store: a key is the path of a file in it.

obstore could do this too, but it does not sync: a broker deletes its own copy of a segment once
the store has it, so a power failure would lose records. Also, the kernel copies here from
file to file, which is several times as fast.

An object is written under `.uploads`, synced, and then renamed, so readers see all of it or
nothing. What a crash has left in `.uploads` is removed a day later, when the store is opened.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import EINVAL, ENOSYS, ENOTSOCK, EOPNOTSUPP, EROFS, EXDEV
from functools import cache, partial
from itertools import islice
from secrets import token_hex
from typing import Final, TypeVar

from ottla.ports import (
    Buffer,
    File,
    FileRange,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    ObjectStoreUnavailable,
    StoredObject,
)
from ottla.server.object_stores.blocking_store import pieces_of
from ottla.server.os_files import OsFiles

T = TypeVar("T")

UPLOADS: Final = ".uploads"
_LEFTOVER_AGE_S: Final = 24 * 3600
_CANNOT_COPY: Final = (EXDEV, EINVAL, ENOSYS, EOPNOTSUPP)
_CANNOT_SEND: Final = (EINVAL, ENOSYS, EOPNOTSUPP, ENOTSOCK)
_ATTEMPTS: Final = 5
_COPY_BYTES: Final = 256 * 1024
_FILES: Final = OsFiles()


class DirectoryStore:
    """The objects below a directory."""

    def __init__(self, root: str, *, create: bool = True) -> None:
        """Create the directory if it is not there, and remove old leftovers.

        Without `create`, change nothing, and raise ObjectNotFound if there is no directory.
        """
        self._root = root
        self._uploads = os.path.join(root, UPLOADS)
        if create:
            _translated(root, partial(os.makedirs, root, exist_ok=True))
            _remove_leftovers(self._uploads)
        elif not os.path.isdir(root):
            raise ObjectNotFound(f"{root}: there is no such directory")

    def put(self, key: str, content: Buffer | FileRange) -> None:
        """Store an object, replacing one of the same key."""
        path = self._path(key)
        _translated(key, lambda: self._put(path, content), is_missing_fatal=True)

    def get(self, key: str, position: int, length: int) -> bytes:
        """Read `length` bytes at `position`; fewer only at the end of the object."""
        path = self._path(key)

        def read() -> bytes:
            file = _FILES.open(path)
            try:
                # no more than there is: memory for all of `length` would be allocated
                return file.pread(max(min(length, file.size() - position), 0), position)
            finally:
                file.close()

        return _translated(key, read)

    def get_file(self, key: str, position: int, length: int) -> FileRange:
        """Return a part of the file, with its pages in memory.

        `sendfile` sends from there as from a local segment. The system may take the pages back,
        if it needs the memory at once: then they are read again while they are sent.
        """
        path = self._path(key)

        def read() -> FileRange:
            file = _FILES.open(path)
            found = max(min(length, file.size() - position), 0)
            _read_pages(file, position, found)
            return FileRange(file, position, found)

        return _translated(key, read)

    def size(self, key: str) -> int:
        """Return the size of an object."""
        return _translated(key, lambda: os.stat(self._path(key)).st_size)

    def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        """Return up to `limit` objects under a prefix whose keys are greater than `after`."""
        if self._is_hidden(prefix.partition("/")[0]):
            return []
        return _translated(
            prefix, lambda: list(islice(self._walk(prefix.rstrip("/"), after), limit))
        )

    def directories(self, prefix: str) -> Sequence[str]:
        """Return the names of the directories under a prefix, sorted."""

        def names() -> Sequence[str]:
            return sorted(name[:-1] for name in self._entries(prefix) if name.endswith("/"))

        return _translated(prefix, names)

    def delete(self, key: str) -> None:
        """Remove an object, and the directories that are empty then."""
        path = self._path(key)

        def remove() -> None:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
            self._remove_empty(os.path.dirname(path))

        _translated(key, remove)

    # -- writing -------------------------------------------------------------------------

    def _put(self, path: str, content: Buffer | FileRange) -> None:
        if not os.path.isdir(self._root):  # a volume that is not mounted must not be replaced
            raise OSError(f"{self._root} is gone")
        os.makedirs(self._uploads, exist_ok=True)
        temporary = os.path.join(self._uploads, token_hex(16))
        file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try:
                _write(file, content)
                os.fsync(file)
            finally:
                os.close(file)
            self._rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _rename(self, temporary: str, path: str) -> None:
        """Give an object its name. Another process may remove the empty directory meanwhile."""
        directory = os.path.dirname(path)
        for attempt in range(_ATTEMPTS):
            self._make_directory(directory)
            try:
                os.replace(temporary, path)
                _FILES.sync_dir(directory)
                return
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _make_directory(self, directory: str) -> None:
        if directory == self._root or os.path.isdir(directory):
            return
        parent = os.path.dirname(directory)
        self._make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(directory)
        _FILES.sync_dir(parent)

    def _remove_empty(self, directory: str) -> None:
        while directory != self._root:
            try:
                os.rmdir(directory)
            except FileNotFoundError:
                pass
            except OSError:
                return  # not empty, most likely
            directory = os.path.dirname(directory)

    # -- reading -------------------------------------------------------------------------

    def _walk(self, directory: str, after: str) -> Iterator[StoredObject]:
        """Yield the objects in a directory in the order of their keys, those after `after`."""
        prefix = f"{directory}/" if directory else ""
        names = self._entries(prefix)
        if after.startswith(prefix):
            rest = after[len(prefix) :]
            first, slash, _ = rest.partition("/")
            at = bisect_right(names, rest)
            if slash and at and names[at - 1] == first + slash:
                at -= 1
            names = names[at:]
        elif after > prefix:
            return
        for name in names:
            if name.endswith("/"):
                yield from self._walk(prefix + name[:-1], after)
                continue
            with suppress(FileNotFoundError):  # removed since the directory was read
                yield StoredObject(prefix + name, os.stat(self._path(prefix + name)).st_size)

    def _entries(self, prefix: str) -> Sequence[str]:
        """Return the names in a directory as they sort in keys: directories end with a slash."""
        try:
            with os.scandir(os.path.join(self._root, prefix)) as found:
                names = [entry.name + "/" if entry.is_dir() else entry.name for entry in found]
        except (FileNotFoundError, NotADirectoryError):
            if not os.path.isdir(self._root):
                raise OSError(f"{self._root} is gone") from None
            return []
        return sorted(name for name in names if prefix or not self._is_hidden(name.rstrip("/")))

    def _is_hidden(self, name: str) -> bool:
        return name == UPLOADS

    def _path(self, key: str) -> str:
        parts = key.split("/")
        if not all(parts) or "." in parts or ".." in parts or parts[0] == UPLOADS:
            raise ObjectStoreDenied(f"{key!r} cannot be the key of an object in a directory")
        return os.path.join(self._root, *parts)


def _read_pages(file: File, position: int, length: int) -> None:
    """Read a part of a file into the system's memory, if possible without copying it."""
    send: Callable[[int, int, int, int], int] | None = getattr(os, "sendfile", None)
    end = position + length
    while position < end:
        count = 0
        if send is not None:
            try:
                count = send(_nothing(), file.fileno(), position, end - position)
            except OSError as error:
                if error.errno not in _CANNOT_SEND:
                    raise
                send = None
        if send is None:
            count = len(file.pread(min(end - position, _COPY_BYTES), position))
        if count == 0:
            return  # it was cut off meanwhile
        position += count


@cache
def _nothing() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _write(file: int, content: Buffer | FileRange) -> None:
    if not isinstance(content, FileRange):
        _write_all(file, content)
    elif not _copy_in_kernel(content, file):
        for piece in pieces_of(content):
            _write_all(file, piece)


def _write_all(file: int, content: Buffer) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def _copy_in_kernel(content: FileRange, target: int) -> bool:
    """Copy a part of a file without reading it; return False if that is not possible here."""
    copy: Callable[..., int] | None = getattr(os, "copy_file_range", None)  # Linux only
    source = content.file.fileno()
    if copy is None or source < 0:
        return False
    copied = 0
    while copied < content.length:
        length = min(content.length - copied, _COPY_BYTES)
        try:
            count = copy(source, target, length, content.position + copied)
        except OSError as error:
            if copied == 0 and error.errno in _CANNOT_COPY:
                return False
            raise
        if count == 0:
            left = content.length - copied
            raise OSError(f"{content.file.path} ends {left} bytes too early")
        copied += count
    return True


def _remove_leftovers(directory: str) -> None:
    with suppress(OSError), os.scandir(directory) as found:
        for entry in found:
            with suppress(OSError):
                if time.time() - entry.stat().st_mtime > _LEFTOVER_AGE_S:
                    os.unlink(entry.path)


def _translated(key: str, work: Callable[[], T], *, is_missing_fatal: bool = False) -> T:
    """Do work; raise one of the port's errors instead of an OSError."""
    try:
        return work()
    except ObjectStoreError:
        raise
    except OSError as error:
        raise _error_for(key, error, is_missing_fatal) from None


def _error_for(key: str, error: OSError, is_missing_fatal: bool) -> ObjectStoreError:
    text = f"{key}: {error.strerror or error}"
    if isinstance(error, PermissionError) or error.errno == EROFS:
        return ObjectStoreDenied(text)
    is_missing = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
    if is_missing and not is_missing_fatal:
        return ObjectNotFound(text)
    return ObjectStoreUnavailable(text)
