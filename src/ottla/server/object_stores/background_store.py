"""The ObjectStore port: a store named by a URL, whose calls are work in the background.

The calls block while the network or the disk is asked: give the store threads of its own,
or one upload holds up everybody's fsync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.ports import (
    Background,
    Buffer,
    FileRange,
    ObjectStoreError,
    StoredObject,
)
from ottla.server.object_stores.blocking_store import open_blocking_store

T = TypeVar("T")


class BackgroundStore:
    """An object store named by a URL, such as `file:/directory` or `s3://bucket/prefix`."""

    def __init__(self, url: str, background: Background) -> None:
        """Open the store; see `open_blocking_store` for the errors."""
        self._store = open_blocking_store(url)
        self._background = background

    def put(
        self,
        key: str,
        content: Buffer | FileRange,
        done: Callable[[ObjectStoreError | None], None],
    ) -> None:
        """Store an object, replacing one of the same key."""
        self._submit(lambda: self._store.put(key, content), done)

    def get(
        self,
        key: str,
        position: int,
        length: int,
        done: Callable[[bytes | ObjectStoreError], None],
    ) -> None:
        """Read `length` bytes at `position`; fewer only at the end of the object."""
        self._submit(lambda: self._store.get(key, position, length), done)

    def get_file(
        self,
        key: str,
        position: int,
        length: int,
        done: Callable[[FileRange | ObjectStoreError], None],
    ) -> None:
        """Read what `get` reads; `done` gets it as a part of a file."""
        self._submit(lambda: self._store.get_file(key, position, length), done)

    def size(self, key: str, done: Callable[[int | ObjectStoreError], None]) -> None:
        """Return the size of an object."""
        self._submit(lambda: self._store.size(key), done)

    def list(
        self,
        prefix: str,
        after: str,
        limit: int,
        done: Callable[[list[StoredObject] | ObjectStoreError], None],
    ) -> None:
        """Return up to `limit` objects under a prefix whose keys are greater than `after`."""
        self._submit(lambda: self._store.list(prefix, after, limit), done)

    def delete(self, key: str, done: Callable[[ObjectStoreError | None], None]) -> None:
        """Remove an object; fine if it is not there."""
        self._submit(lambda: self._store.delete(key), done)

    def _submit(self, work: Callable[[], T], done: Callable[[T | ObjectStoreError], None]) -> None:
        def finish(result: T | OSError) -> None:
            done(result)  # type: ignore[arg-type]  # a BlockingStore raises no other OSError

        self._background.submit(work, finish)
