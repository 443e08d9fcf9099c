"""The ObjectStore port, through obstore: S3 and its like, a directory, or memory.

obstore is in the extra `tier`, and imported only when a store is opened. Its calls block while
the network is asked, so they are work in the background: give each store a thread of its own,
or one upload holds up everybody's fsync.

S3 takes its credentials and region from the environment (AWS_ACCESS_KEY_ID and so on), as
Amazon's tools do. obstore repeats requests that failed, for half a minute at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from ottla.ports import (
    Background,
    Buffer,
    FileRange,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    ObjectStoreUnavailable,
    StoredObject,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Store
    from obstore.store import RetryConfig

T = TypeVar("T")

PIECE_BYTES: Final = 8 * 1024 * 1024
"""A file is read and uploaded in pieces of this size."""
_PAGE: Final = 1000
_RETRIES: Final = 4
_RETRY_TIMEOUT: Final = timedelta(seconds=30)


class ObstoreObjectStore:
    """An object store named by a URL: `file:/directory`, `memory:` or `s3://bucket/prefix`."""

    def __init__(self, url: str, background: Background) -> None:
        """Open the store; ValueError if the URL is none that is understood."""
        self._store, self._is_sorted = _open(url)
        self._background = background

    def put(
        self,
        key: str,
        content: Buffer | FileRange,
        done: Callable[[ObjectStoreError | None], None],
    ) -> None:
        """Store an object, replacing one of the same key."""
        self._submit(key, lambda: self._put(key, content), done)

    def get(
        self,
        key: str,
        position: int,
        length: int,
        done: Callable[[bytes | ObjectStoreError], None],
    ) -> None:
        """Read `length` bytes at `position`; fewer only at the end of the object."""
        self._submit(key, lambda: self._get(key, position, length), done)

    def size(self, key: str, done: Callable[[int | ObjectStoreError], None]) -> None:
        """Return the size of an object."""
        self._submit(key, lambda: self._size(key), done)

    def list(
        self,
        prefix: str,
        after: str,
        limit: int,
        done: Callable[[list[StoredObject] | ObjectStoreError], None],
    ) -> None:
        """Return up to `limit` objects under a prefix whose keys are greater than `after`."""
        self._submit(
            prefix, lambda: _page_of(self._store, prefix, after, limit, self._is_sorted), done
        )

    def delete(self, key: str, done: Callable[[ObjectStoreError | None], None]) -> None:
        """Remove an object; fine if it is not there."""
        self._submit(key, lambda: self._delete(key), done)

    def _submit(
        self, key: str, work: Callable[[], T], done: Callable[[T | ObjectStoreError], None]
    ) -> None:
        from obstore.exceptions import BaseError

        def translated() -> T:
            try:
                return work()
            except (BaseError, OSError) as error:
                raise _translate(key, error) from None

        def finish(result: T | OSError) -> None:
            done(result)  # type: ignore[arg-type]  # `translated` raises no other OSError

        self._background.submit(translated, finish)

    # -- in the background ---------------------------------------------------------------

    def _put(self, key: str, content: Buffer | FileRange) -> None:
        import obstore

        if not isinstance(content, FileRange):
            obstore.put(self._store, key, bytes(content))
        elif content.length <= PIECE_BYTES:
            obstore.put(self._store, key, b"".join(_pieces(content)))
        else:
            obstore.put(self._store, key, _pieces(content), chunk_size=PIECE_BYTES)

    def _get(self, key: str, position: int, length: int) -> bytes:
        import obstore
        from obstore.exceptions import GenericError

        try:
            return bytes(obstore.get_range(self._store, key, start=position, length=length))
        except GenericError:
            if position < obstore.head(self._store, key)["size"]:
                raise
            return b""  # there is nothing at the position: stores call this an invalid range

    def _size(self, key: str) -> int:
        import obstore

        return obstore.head(self._store, key)["size"]

    def _delete(self, key: str) -> None:
        import obstore

        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            pass  # S3 does not tell either


def _open(url: str) -> tuple[Store, bool]:
    """Return the store of a URL, and whether its listings are sorted."""
    from obstore.store import LocalStore, MemoryStore, S3Store

    scheme, _, path, _, _ = urlsplit(url)
    if scheme == "memory":
        return MemoryStore(), True
    if scheme == "file" and path.startswith("/"):
        return LocalStore(unquote(path), mkdir=True), False
    if scheme == "s3":
        retries: RetryConfig = {"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT}
        return S3Store.from_url(url, retry_config=retries), True
    raise ValueError(f"{url!r} is not an object store: file:/directory, memory: or s3://bucket")


def _page_of(
    store: Store, prefix: str, after: str, limit: int, is_sorted: bool
) -> list[StoredObject]:
    import obstore

    pages = obstore.list(store, prefix or None, offset=after or None, chunk_size=min(limit, _PAGE))
    found = (StoredObject(meta["path"], meta["size"]) for page in pages for meta in page)
    return list(islice(found if is_sorted else sorted(found), limit))


def _pieces(content: FileRange) -> Iterator[bytes]:
    file, position, left = content
    while left:
        piece = file.pread(min(left, PIECE_BYTES), position)
        if not piece:
            raise OSError(f"{file.path} ends {left} bytes too early")
        yield piece
        position += len(piece)
        left -= len(piece)


def _translate(key: str, error: Exception) -> ObjectStoreError:
    """Return one of the port's errors, with the first line of what obstore says."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    text = f"{key}: {str(error).partition(chr(10))[0]}"
    if isinstance(error, FileNotFoundError):
        return ObjectNotFound(text)
    if isinstance(error, PermissionError | PermissionDeniedError | UnauthenticatedError):
        return ObjectStoreDenied(text)
    return ObjectStoreUnavailable(text)
