"""The ObjectStore port in memory, with faults that a seed decides.

unavailable   the store answers with an error and has done nothing
lost          it has done what was asked, and answers with an error all the same
slow          the answer comes later, after those of requests that were made later
short         a listing has fewer objects than were asked for, but at least one
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from random import Random as Generator
from typing import NamedTuple, TypeVar

from ottla.memory_files import MemoryFiles
from ottla.ports import (
    Background,
    Buffer,
    FileRange,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreUnavailable,
    StoredObject,
)

T = TypeVar("T")


class StoreFaults(NamedTuple):
    """How often each fault happens to a request, from 0 to 1."""

    unavailable: float = 0.0
    lost: float = 0.0
    slow: float = 0.0
    short: float = 0.0


class SharedObjects:
    """The objects of a store that several machines use, and its faults."""

    def __init__(self, chance: Generator) -> None:
        self._chance = chance
        self.objects: dict[str, bytes] = {}
        self._open: list[SimObjectStore] = []
        self._faults = StoreFaults()

    def set_faults(self, faults: StoreFaults) -> None:
        """Let requests of all machines fail like this from now on."""
        self._faults = faults
        for store in self._open:
            store.faults = faults

    def open(self, background: Background) -> SimObjectStore:
        """Return the store for a process that starts."""
        store = SimObjectStore(background, self._chance, self._faults)
        store.objects = self.objects
        self._open.append(store)
        return store


class SimObjectStore:
    """A store that outlives the brokers that use it: `objects` is what it has."""

    def __init__(
        self, background: Background, chance: Generator, faults: StoreFaults | None = None
    ) -> None:
        self._background = background
        self._chance = chance
        self.faults = faults or StoreFaults()
        self.objects: dict[str, bytes] = {}

    def put(
        self,
        key: str,
        content: Buffer | FileRange,
        done: Callable[[ObjectStoreError | None], None],
    ) -> None:
        """Store an object."""

        def work() -> None:
            if isinstance(content, FileRange):
                self.objects[key] = content.file.pread(content.length, content.position)
            else:
                self.objects[key] = bytes(content)

        self._submit(work, done)

    def get(
        self,
        key: str,
        position: int,
        length: int,
        done: Callable[[bytes | ObjectStoreError], None],
    ) -> None:
        """Read a range of an object."""
        self._submit(lambda: self._object(key)[position : position + length], done)

    def get_file(
        self,
        key: str,
        position: int,
        length: int,
        done: Callable[[FileRange | ObjectStoreError], None],
    ) -> None:
        """Read a range of an object; `done` gets it as a part of a file in memory."""

        def work() -> FileRange:
            file = MemoryFiles().open("object", create=True)
            file.pwritev([self._object(key)], 0)
            return FileRange(file, position, max(min(length, file.size() - position), 0))

        self._submit(work, done)

    def size(self, key: str, done: Callable[[int | ObjectStoreError], None]) -> None:
        """Return the size of an object."""
        self._submit(lambda: len(self._object(key)), done)

    def list(
        self,
        prefix: str,
        after: str,
        limit: int,
        done: Callable[[list[StoredObject] | ObjectStoreError], None],
    ) -> None:
        """Return a page of a listing."""

        def work() -> list[StoredObject]:
            keys = sorted(key for key in self.objects if key.startswith(prefix))
            keys = keys[bisect_right(keys, after) :][:limit]
            if len(keys) > 1 and self._happens(self.faults.short):
                keys = keys[: self._chance.randint(1, len(keys) - 1)]
            return [StoredObject(key, len(self.objects[key])) for key in keys]

        self._submit(work, done)

    def delete(self, key: str, done: Callable[[ObjectStoreError | None], None]) -> None:
        """Remove an object."""

        def work() -> None:
            self.objects.pop(key, None)

        self._submit(work, done)

    def _object(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise ObjectNotFound(f"{key}: there is no such object") from None

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _submit(self, work: Callable[[], T], done: Callable[[T | ObjectStoreError], None]) -> None:
        def run() -> T:
            if self._happens(self.faults.unavailable):
                raise ObjectStoreUnavailable("on purpose, before")
            result = work()
            if self._happens(self.faults.lost):
                raise ObjectStoreUnavailable("on purpose, after")
            return result

        def finish(result: T | OSError) -> None:
            if self._happens(self.faults.slow):
                self._background.submit(lambda: None, lambda nothing: finish(result))
            else:
                done(result)  # type: ignore[arg-type]  # `run` raises no other OSError

        self._background.submit(run, finish)
