"""The time index: the offset to search from for a timestamp.

An entry has a timestamp (8 bytes) and a relative offset (4). It says that no batch before the
one that ends at the offset has a larger timestamp. Timestamps rise strictly, and offsets rise
with them. One slot is reserved for the entry that is written when the segment is rolled: the
largest timestamp of the whole segment (KIP-33).
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from ottla.log.segment.index_file import IndexFile, entries_of
from ottla.model.ids import NO_TIMESTAMP
from ottla.ports import Files

_ENTRY = Struct(">qi")


def last_entry(files: Files, path: str) -> tuple[int, int] | None:
    """Return timestamp and relative offset of the last entry of a file, off the loop.

    (-1, 0) if there is none, None if the file is missing or damaged.
    """
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    size = file.size()
    content = file.pread(_ENTRY.size, size - _ENTRY.size) if size else b""
    file.close()
    if size % _ENTRY.size:
        return None
    if not content:
        return NO_TIMESTAMP, 0
    timestamp, relative = _ENTRY.unpack(content)
    return (timestamp, relative) if timestamp >= 0 and relative >= 0 else None


class TimeIndex(IndexFile):
    """The time index of one segment."""

    __slots__ = ()

    ENTRY_SIZE: ClassVar[int] = 12

    def append(self, timestamp: int, offset: int, capacity_bytes: int) -> None:
        """Add an entry if its timestamp is larger than the last one's."""
        if timestamp > self.last()[0]:
            self.add(_ENTRY.pack(timestamp, offset - self.base_offset), capacity_bytes)

    def is_full(self, capacity_bytes: int, waiting: int = 0) -> bool:
        """Return True if only the reserved slot is left besides entries waiting to be added."""
        return self.entries + waiting >= capacity_bytes // 12 - 1

    def entry(self, slot: int) -> tuple[int, int]:
        """Return timestamp and offset of an entry."""
        return self._decode(self.entry_bytes(slot))

    def _decode(self, entry: bytes) -> tuple[int, int]:
        timestamp, relative = _ENTRY.unpack(entry)
        return timestamp, self.base_offset + relative

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Return the last entry at or before `timestamp`; (-1, base offset) if there is none."""
        slot = -1
        if timestamp >= 0:
            slot = self.floor(min(timestamp, 2**63 - 1).to_bytes(8, "big"), 0, 8)
        return (NO_TIMESTAMP, self.base_offset) if slot < 0 else self.entry(slot)

    def last(self) -> tuple[int, int]:
        """Return the last entry; (-1, base offset) if there is none."""
        if not self.entries:
            return NO_TIMESTAMP, self.base_offset
        return self._decode(self.last_bytes())

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of offsets from `offset` on."""
        relative = offset - 1 - self.base_offset
        slot = -1 if relative < 0 else self.floor(relative.to_bytes(4, "big"), 8, 4)
        self.cut(slot + 1)

    @staticmethod
    def valid_entries(files: Files, path: str, base_offset: int, before: int) -> int:
        """Count the entries of a file that are in order and before an offset; reads all of them."""
        last_timestamp, last_relative = -1, -1
        count = 0
        for timestamp, relative in entries_of(files, path, _ENTRY):
            if timestamp <= last_timestamp or relative < last_relative:
                break
            if base_offset + relative >= before:
                break
            last_timestamp, last_relative = timestamp, relative
            count += 1
        return count

    def damage(self) -> str | None:
        """Return what is wrong with the index, or None; reads two entries."""
        if not self.entries:
            return None
        first, last = self.read_ends()
        first_timestamp, first_offset = self._decode(first)
        last_timestamp, last_offset = self._decode(last)
        if first_timestamp < 0 or last_timestamp < first_timestamp:
            return f"timestamps run from {first_timestamp} to {last_timestamp}"
        if first_offset < self.base_offset or last_offset < first_offset:
            return f"offsets run from {first_offset} to {last_offset}"
        return None
