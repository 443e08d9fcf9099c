"""The offset index: the position to read from for an offset.

An entry is a relative offset (the last offset of a batch minus the segment's base offset)
and the position of that batch, 4 bytes each. Relative offsets and positions rise strictly.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from ottla.log.segment.batch_scan import MAX_RELATIVE_OFFSET
from ottla.log.segment.index_file import IndexFile, entries_of
from ottla.ports import Files

MAX_POSITION = 2**31 - 1
_ENTRY = Struct(">ii")


class OffsetIndex(IndexFile):
    """The offset index of one segment."""

    __slots__ = ()

    ENTRY_SIZE: ClassVar[int] = 8

    def append(self, offset: int, position: int, capacity_bytes: int) -> None:
        """Add an entry, which must come after the last one."""
        self.add(_ENTRY.pack(offset - self.base_offset, position), capacity_bytes)

    def is_full(self, capacity_bytes: int, waiting: int = 0) -> bool:
        """Return True if no entry fits besides those waiting to be added."""
        return self.entries + waiting >= capacity_bytes // 8

    def entry(self, slot: int) -> tuple[int, int]:
        """Return offset and position of an entry."""
        return self._decode(self.entry_bytes(slot))

    def _decode(self, entry: bytes) -> tuple[int, int]:
        relative, position = _ENTRY.unpack(entry)
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return the last entry at or before `offset`; the segment's start if there is none."""
        slot = self.floor_slot(offset)
        return (self.base_offset, 0) if slot < 0 else self.entry(slot)

    def floor_slot(self, offset: int) -> int:
        relative = offset - self.base_offset
        if relative < 0:
            return -1
        return self.floor(min(relative, MAX_RELATIVE_OFFSET).to_bytes(4, "big"), 0, 4)

    def offset_from(self, position: int) -> int | None:
        """Return the offset of the first entry at or after a position, if there is one."""
        slot = self.floor(min(position, MAX_POSITION).to_bytes(4, "big"), 4, 4)
        if slot >= 0 and self.entry(slot)[1] == position:
            return self.entry(slot)[0]
        return self.entry(slot + 1)[0] if slot + 1 < self.entries else None

    def last(self) -> tuple[int, int]:
        """Return offset and position of the last entry; the segment's start if there is none."""
        return self._decode(self.last_bytes()) if self.entries else (self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        self.cut(self.floor_slot(offset - 1) + 1)

    @staticmethod
    def valid_entries(files: Files, path: str, base_offset: int, before: int) -> int:
        """Count the entries of a file that are in order and before an offset; reads all of them."""
        last_relative, last_position = -1, 0
        count = 0
        for relative, position in entries_of(files, path, _ENTRY):
            if relative <= last_relative or position <= last_position:
                break
            if base_offset + relative >= before:
                break
            last_relative, last_position = relative, position
            count += 1
        return count

    def damage(self, log_size: int) -> str | None:
        """Return what is wrong with the index, or None; reads two entries."""
        if not self.entries:
            return None
        first, last = self.read_ends()
        first_offset, first_position = self._decode(first)
        last_offset, last_position = self._decode(last)
        if first_offset < self.base_offset or last_offset < first_offset:
            return f"offsets run from {first_offset} to {last_offset}"
        if first_position < 0 or last_position < first_position:
            return f"positions run from {first_position} to {last_position}"
        if last_position >= log_size:
            return f"the last position {last_position} is not below the segment's {log_size} bytes"
        return None
