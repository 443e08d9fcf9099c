"""An object store whose calls return when the work is done, named by a URL.

    file:./cold            a directory, relative or absolute
    s3://bucket/prefix     Amazon S3 and compatible stores
    gs://bucket/prefix     Google Cloud Storage
    az://container/prefix  Azure Blob Storage
    memory:                this process's memory, for tests

The loop of a broker must not call it: `background_store.py` does so in the background. Programs
without a loop, such as the reader of remote segments, use it directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import abspath
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from ottla.ports import Buffer, FileRange, StoredObject

PIECE_BYTES: Final = 8 * 1024 * 1024
"""A file is read and uploaded in pieces of this size."""
_CLOUDS: Final = ("s3", "gs", "az")


class BlockingStore(Protocol):
    """The calls of the port ObjectStore, without `done`. They raise ObjectStoreError only."""

    def put(self, key: str, content: Buffer | FileRange) -> None:
        """Store an object, replacing one of the same key. Readers see all of it or nothing."""
        ...

    def get(self, key: str, position: int, length: int) -> bytes:
        """Read `length` bytes at `position`; fewer only at the end of the object."""
        ...

    def get_file(self, key: str, position: int, length: int) -> FileRange:
        """Return what `get` reads as a part of a file, to be sent without a copy."""
        ...

    def size(self, key: str) -> int:
        """Return the size of an object."""
        ...

    def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        """Return up to `limit` objects under a prefix whose keys are greater than `after`."""
        ...

    def directories(self, prefix: str) -> Sequence[str]:
        """Return the distinct parts of keys between `prefix` and the next slash, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; fine if it is not there."""
        ...


def open_blocking_store(url: str, *, create: bool = True) -> BlockingStore:
    """Return the store that a URL names. With `create`, make a directory that is not there.

    Raise ValueError if the URL names none, ObjectStoreError if a directory cannot be used, and
    ImportError if the store needs obstore (the extra `tier`) and it is not installed.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise _bad_url(url, "it must have no user, password, query or fragment")
    if parts.scheme == "file":
        return _open_directory(url, parts.netloc, unquote(parts.path), create)
    if parts.scheme == "memory" and not parts.netloc and not parts.path:
        from ottla.server.object_stores.cloud_store import open_memory

        return open_memory()
    if parts.scheme not in _CLOUDS:
        raise _bad_url(url, "the scheme is none of file, s3, gs and az")
    if not parts.netloc:
        raise _bad_url(url, "the bucket or container is missing")
    from ottla.server.object_stores.cloud_store import open_cloud

    return open_cloud(parts.scheme, parts.netloc, unquote(parts.path).strip("/"))


def pieces_of(content: FileRange) -> Iterator[bytes]:
    """Yield a part of a file in pieces; raise OSError if the file ends before."""
    file, position, left = content
    while left:
        piece = file.pread(min(left, PIECE_BYTES), position)
        if not piece:
            raise OSError(f"{file.path} ends {left} bytes too early")
        yield piece
        position += len(piece)
        left -= len(piece)


def all_objects(store: BlockingStore, prefix: str, page: int = 1000) -> Iterator[StoredObject]:
    """Yield all objects under a prefix, sorted by key."""
    after = ""
    while found := store.list(prefix, after, page):
        yield from found
        after = found[-1].key


def _open_directory(url: str, host: str, path: str, create: bool) -> BlockingStore:
    from ottla.server.object_stores.directory_store import DirectoryStore

    if host not in ("", "localhost"):
        raise _bad_url(url, f"a directory has no host; write file:{host}{path} or file:///path")
    if not path:
        raise _bad_url(url, "the directory is missing")
    return DirectoryStore(abspath(path), create=create)


def _bad_url(url: str, reason: str) -> ValueError:
    return ValueError(
        f"{url!r} is not an object store: {reason}. Examples: file:./directory,"
        " s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"
    )
