"""The common part of offset index and time index: a file of fixed-size entries.

Entries are sorted, keys big-endian and never negative, so they compare as bytes. Lookups use a
read-only map. New entries are kept in memory and written in blocks with ordinary writes: a
store through a map on a full disk would kill the process (SIGBUS), and recovery rebuilds an
index that lacks its last entries after a crash anyway.

While its segment is active, the file is preallocated for as many entries as it may get. When the
segment is rolled or the log closed, it is cut to the entries it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from errno import EDQUOT, ENOSPC
from struct import Struct
from typing import ClassVar

from ottla.log.damage import CorruptIndex
from ottla.log.file_pool import FilePool
from ottla.ports import Files, Mapping

_BLOCK_ENTRIES = 256

TRIMMED = 0
PREALLOCATED = 1
UNKNOWN = 2
"""What is known about the length of the file: that of its entries, the capacity, or nothing."""

COLLECTED = 3
"""All entries are in memory, and `trim` writes the file."""


class IndexFile:
    """Sorted entries in a file, the newest of them still in memory."""

    __slots__ = ("_last", "_length", "_pool", "_tail", "_written", "base_offset", "path")

    ENTRY_SIZE: ClassVar[int] = 0

    def __init__(
        self, pool: FilePool, path: str, base_offset: int, entries: int, length: int = TRIMMED
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self._pool = pool
        self._written = entries
        self._tail: bytes | bytearray = bytearray() if length == COLLECTED else b""
        self._last = b""
        self._length = length

    @property
    def entries(self) -> int:
        return self._written + len(self._tail) // self.ENTRY_SIZE

    def open_map(self, files: Files) -> Mapping:
        """Map the file for the pool; raise CorruptIndex if it is missing or too short."""
        try:
            file = files.open(self.path)
        except FileNotFoundError:
            raise CorruptIndex(self.path, "(it is missing)") from None
        if file.size() < self._written * self.ENTRY_SIZE:
            raise CorruptIndex(self.path, f"and shorter than its {self._written} entries")
        return file.map(writable=False)

    def entry_bytes(self, slot: int) -> bytes:
        """Return the bytes of the entry with this number."""
        size = self.ENTRY_SIZE
        if slot >= self._written:
            start = (slot - self._written) * size
            return bytes(self._tail[start : start + size])
        return self._pool.map(self)[slot * size : slot * size + size]

    def last_bytes(self) -> bytes:
        """Return the last entry; there must be one. It is cached, because it is needed most."""
        if not self._last:
            self._last = self.entry_bytes(self.entries - 1)
        return self._last

    def read_ends(self) -> tuple[bytes, bytes]:
        """Read the first and the last entry without mapping the file; there must be one."""
        size, file = self.ENTRY_SIZE, self._pool.open(self.path)
        self._last = file.pread(size, (self._written - 1) * size)
        return file.pread(size, 0) if self._written > 1 else self._last, self._last

    def add(self, entry: bytes, capacity_bytes: int) -> None:
        """Append an entry. The first one preallocates the file; it is written in blocks."""
        self._tail += entry
        self._last = entry
        if self._length == COLLECTED:
            return
        if self._length != PREALLOCATED or len(self._tail) >= _BLOCK_ENTRIES * self.ENTRY_SIZE:
            self.write(capacity_bytes)

    def write(self, capacity_bytes: int) -> None:
        """Write all entries to the file, preallocating it first.

        On a full disk they stay in memory: the next write to the log fails and reports it.
        """
        if not self._tail and self._length == PREALLOCATED:
            return
        try:
            file = self._pool.open(self.path, create=True, writable=True)
            if self._length != PREALLOCATED:
                self._pool.discard_map(self)
                if file.size() > self._written * self.ENTRY_SIZE:
                    file.truncate(self._written * self.ENTRY_SIZE)
                file.truncate(max(self.whole(capacity_bytes), self.entries * self.ENTRY_SIZE))
                self._length = PREALLOCATED
            if self._tail:
                file.pwritev([self._tail], self._written * self.ENTRY_SIZE)
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            return
        self._written = self.entries
        self._tail = b""

    def trim(self) -> bool:
        """Cut the file to its entries when no more will come; return True if that changed it.

        On a full disk they stay in memory, and the next start rebuilds the file.
        """
        if self._length == TRIMMED and not self._tail:
            return False
        self._pool.discard_map(self)
        size = self.ENTRY_SIZE
        try:
            file = self._pool.open(self.path, create=True, writable=True)
            if self._tail:
                file.pwritev([self._tail], self._written * size)
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            return False
        self._written, self._tail = self.entries, b""
        file.truncate(self._written * size)
        self._length = TRIMMED
        return True

    def cut(self, entries: int) -> None:
        """Keep only the first `entries`."""
        size = self.ENTRY_SIZE
        self._last = b""
        if entries >= self._written:
            self._tail = self._tail[: (entries - self._written) * size]
            return
        self._tail = b""
        self._written = entries
        self._length = TRIMMED
        self._pool.discard_map(self)
        self._pool.open(self.path, create=True, writable=True).truncate(entries * size)

    def adopt(self, entries: int) -> None:
        """Use only the first entries of the file, however long it is."""
        self._written, self._tail, self._last = entries, b"", b""
        self._length = UNKNOWN

    def whole(self, capacity_bytes: int) -> int:
        """Return the capacity in bytes, rounded down to whole entries."""
        return capacity_bytes - capacity_bytes % self.ENTRY_SIZE

    def floor(self, key: bytes, start: int, width: int) -> int:
        """Return the last slot whose bytes [start, start + width) are at most `key`, or -1."""
        size = self.ENTRY_SIZE
        tail, written = self._tail, self._written
        if tail and tail[start : start + width] <= key:
            return written + _floor(tail, len(tail) // size, size, start, key)
        if not written:
            return -1
        return _floor(self._pool.map(self), written, size, start, key)


def entries_of(files: Files, path: str, entry: Struct) -> Iterator[tuple[int, int]]:
    """Yield all entries of a file, valid or not."""
    file, position = files.open(path), 0
    step = entry.size * _BLOCK_ENTRIES
    while block := file.pread(step, position):
        yield from entry.iter_unpack(block[: len(block) - len(block) % entry.size])
        position += step


def _floor(data: Mapping | bytes | bytearray, count: int, size: int, start: int, key: bytes) -> int:
    low, high, width = 0, count, len(key)
    while low < high:
        middle = (low + high) // 2
        position = middle * size + start
        if data[position : position + width] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1
