"""A bounded cache of what was read from the object store, and the reads that are under way.

Whoever needs something asks for it (`chunk`, `whole`). If it is not there, `NotCached` is raised, a
read begins, and `NotCached.then` calls back when it has ended. Then one asks again. So nobody
waits, and several readers of the same part share one read.

The log of a segment is read in chunks, with some chunks ahead of the reader. A chunk is a part of a
file in memory: responses are sent from it as from a local segment, without a copy on the loop.
Other objects are read as a whole. A read that failed is not repeated for a moment: until then the
error is raised.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol, cast

from ottla.ports import FileRange, ObjectStore, ObjectStoreError
from ottla.tiered.layout import LOG
from ottla.tiered.metadata_records import SegmentMetadata
from ottla.tiered.not_cached import NotCached
from ottla.tiered.segment_upload import key_of

CHUNK_BYTES: Final = 1024 * 1024
READ_AHEAD: Final = 4
"""How many chunks are read ahead of a reader."""
MOST_BYTES: Final = 64 * 1024 * 1024
REPEAT_AFTER_MS: Final = 1000
_WHOLE: Final = 64 * 1024 * 1024
"""No object but a log is larger: an index of 10 MiB is usual at most."""
_MOST_FAILURES: Final = 1000


class CacheKey(NamedTuple):
    """A part of an object of a segment."""

    segment_id: bytes
    kind: str
    chunk: int = 0


class CacheHost(Protocol):
    """What the cache needs of its broker."""

    def now_ms(self) -> float: ...

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call a function after a delay."""
        ...

    def read_wait_ms(self) -> float:
        """Return how long reads must wait, because of a limit; 0 if they need not."""
        ...

    def charge_read(self, size: int) -> None:
        """Count what was read."""
        ...

    def read_failed(self) -> None:
        """Count a read that failed."""
        ...


class ReadLimits(NamedTuple):
    """How much may be read at the same time, and be kept."""

    at_a_time: int
    waiting: int
    cached_bytes: int


class ObjectCache:
    """The cache of a broker."""

    def __init__(self, store: ObjectStore, host: CacheHost, limits: ReadLimits) -> None:
        self._store = store
        self._host = host
        self.limits = limits
        self.size = 0
        """The bytes of everything that is cached."""
        self._found: OrderedDict[CacheKey, bytes | FileRange] = OrderedDict()
        self._loading: dict[CacheKey, list[Callable[[], None]]] = {}
        self._failed: dict[CacheKey, tuple[ObjectStoreError, float]] = {}
        self._queue: deque[tuple[CacheKey, SegmentMetadata]] = deque()
        self._under_way = 0
        self._is_delayed = False

    @property
    def waiting(self) -> int:
        """How many reads wait for their turn."""
        return len(self._queue)

    def chunk(self, segment: SegmentMetadata, number: int) -> FileRange:
        """Return a chunk of a segment's log. Raise NotCached or ObjectStoreError."""
        last = max(segment.size - 1, 0) // CHUNK_BYTES
        key = CacheKey(segment.segment_id, LOG, number)
        if key not in self._found and key not in self._failed:
            self._load(key, segment)  # before those that are only read ahead
        for ahead in range(number + 1, min(number + READ_AHEAD, last) + 1):
            later = CacheKey(segment.segment_id, LOG, ahead)
            if later not in self._found and later not in self._failed:
                self._load(later, segment)
        return cast(FileRange, self._get(key, segment))

    def whole(self, segment: SegmentMetadata, kind: str) -> bytes:
        """Return an object of a segment. Raise NotCached or ObjectStoreError."""
        return cast(bytes, self._get(CacheKey(segment.segment_id, kind), segment))

    def has_chunk(self, segment: SegmentMetadata, number: int) -> FileRange | None:
        """Return a chunk if it is there."""
        return cast(FileRange | None, self._found.get(CacheKey(segment.segment_id, LOG, number)))

    def prefetch(self, segment: SegmentMetadata) -> None:
        """Read the beginning of a segment that will be needed soon."""
        key = CacheKey(segment.segment_id, LOG, 0)
        if key not in self._found and key not in self._failed:
            self._load(key, segment)

    def forget(self, segment_id: bytes) -> None:
        """Drop what is cached of a segment that was deleted."""
        for key in [key for key in self._found if key.segment_id == segment_id]:
            self.size -= _size(self._found.pop(key))

    def _get(self, key: CacheKey, segment: SegmentMetadata) -> bytes | FileRange:
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
            return found
        failure = self._failed.get(key)
        if failure is not None:
            error, until_ms = failure
            if self._host.now_ms() < until_ms:
                raise error
            del self._failed[key]
        raise NotCached(self._load(key, segment))

    def _load(self, key: CacheKey, segment: SegmentMetadata) -> list[Callable[[], None]] | None:
        """Begin a read unless it is under way; return who waits for it, None if too many wait."""
        waiting = self._loading.get(key)
        if waiting is None:
            if len(self._queue) >= self.limits.waiting:
                return None
            waiting = self._loading[key] = []
            self._queue.append((key, segment))
            self._read_more()
        return waiting

    def _read_more(self) -> None:
        while self._queue and self._under_way < self.limits.at_a_time and not self._is_delayed:
            wait_ms = self._host.read_wait_ms()
            if wait_ms > 0:
                self._is_delayed = True
                self._host.later(wait_ms, self._resume)
                return
            key, segment = self._queue.popleft()
            self._under_way += 1
            name = key_of(segment, key.kind)
            if key.kind == LOG:
                position = key.chunk * CHUNK_BYTES
                length = min(CHUNK_BYTES, segment.size - position)
                self._store.get_file(name, position, length, partial(self._read, key, length))
            else:
                self._store.get(name, 0, _WHOLE, partial(self._read, key, _WHOLE))

    def _resume(self) -> None:
        self._is_delayed = False
        self._read_more()

    def _read(
        self, key: CacheKey, length: int, result: bytes | FileRange | ObjectStoreError
    ) -> None:
        self._under_way -= 1
        waiting = self._loading.pop(key)
        size = 0 if isinstance(result, ObjectStoreError) else _size(result)
        if not isinstance(result, ObjectStoreError) and (size == length) != (key.kind == LOG):
            result = ObjectStoreError(
                f"the {key.kind} of a remote segment has {size} bytes at the position where"
                f" {length} were asked for"
            )
        if isinstance(result, ObjectStoreError):
            self._host.read_failed()
            if len(self._failed) >= _MOST_FAILURES:
                self._failed.clear()
            self._failed[key] = result, self._host.now_ms() + REPEAT_AFTER_MS
        else:
            self._host.charge_read(size)
            self._found[key] = result
            self.size += size
            while self.size > self.limits.cached_bytes and len(self._found) > 1:
                self.size -= _size(self._found.popitem(last=False)[1])
        self._read_more()
        for call in waiting:
            call()


def _size(cached: bytes | FileRange) -> int:
    return len(cached) if isinstance(cached, bytes) else cached.length
