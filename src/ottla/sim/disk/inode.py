"""A file without its name: what programs see, and what would be left if the power went now.

The two differ by the changes since the last sync. A power failure keeps of those
    none; or all; or the first few, the last of them torn at any byte; or any sectors of any
    of them, in no order: what was not kept reads as before, as zeros where nothing was.
A failed sync leaves the changes visible, yet no later sync brings them to the disk: that is
what Linux does with pages it could not write.
"""

from __future__ import annotations

from random import Random as Generator
from typing import Final, NamedTuple

from ottla.ports import Buffer

SECTOR: Final = 512


class Change(NamedTuple):
    """A write of `content` at `position`, or a truncation to `position` where it is None."""

    position: int
    content: bytes | None


class Content:
    """Bytes whose unwritten tail is zeros that take no memory."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytearray, size: int) -> None:
        self.data = data
        self.size = size

    def copy(self) -> Content:
        return Content(bytearray(self.data), self.size)

    def read(self, length: int, position: int) -> bytes:
        end = min(position + length, self.size)
        if end <= position:
            return b""
        found = bytes(self.data[position:end])
        return found + bytes(end - position - len(found))

    def write(self, content: Buffer, position: int) -> None:
        data = self.data
        if position > len(data):
            data.extend(bytes(position - len(data)))
        end = position + len(content)
        data[position:end] = content
        self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def apply(self, change: Change) -> None:
        if change.content is None:
            self.truncate(change.position)
        else:
            self.write(change.content, change.position)


class Inode:
    """One file."""

    __slots__ = ("durable", "live", "mtime_ms", "unsynced")

    def __init__(self, mtime_ms: int) -> None:
        self.live = Content(bytearray(), 0)
        self.durable = Content(bytearray(), 0)
        self.unsynced: list[Change] = []
        self.mtime_ms = mtime_ms

    def change(self, change: Change, mtime_ms: int) -> None:
        """Make a change that the next sync would keep."""
        self.live.apply(change)
        self.unsynced.append(change)
        self.mtime_ms = mtime_ms

    def sync(self) -> None:
        """Make what is visible durable: it survives a power failure."""
        for change in self.unsynced:
            self.durable.apply(change)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """Fail a sync: what was changed stays visible and will never be on disk."""
        self.unsynced.clear()

    def is_forgotten(self) -> bool:
        """Return whether something is visible that no sync will write, because one has failed."""
        left = self.durable.copy()
        for change in self.unsynced:
            left.apply(change)
        return (left.data, left.size) != (self.live.data, self.live.size)

    def lose_unsynced(self) -> None:
        """Go back to what was synced last."""
        self.live = self.durable.copy()
        self.unsynced.clear()

    def lose_power(self, chance: Generator) -> None:
        """Go back to what a power failure leaves, by chance."""
        left = self.durable
        fate = chance.random()
        if fate < 0.15:
            left = self.live
        elif fate < 0.55:
            self._keep_first(left, chance)
        elif fate < 0.85:
            self._keep_some(left, chance)
        self.live, self.durable = left.copy(), left.copy()
        self.unsynced.clear()

    def _keep_first(self, left: Content, chance: Generator) -> None:
        count = chance.randrange(len(self.unsynced) + 1)
        for change in self.unsynced[:count]:
            left.apply(change)
        if count < len(self.unsynced):
            position, content = self.unsynced[count]
            if content is not None:
                left.write(content[: chance.randrange(len(content) + 1)], position)

    def _keep_some(self, left: Content, chance: Generator) -> None:
        for change in self.unsynced:
            if change.content is None:
                if chance.random() < 0.5:
                    left.truncate(change.position)
            else:
                _write_sectors(left, change.position, change.content, chance)


def _write_sectors(left: Content, position: int, content: bytes, chance: Generator) -> None:
    start = 0
    while start < len(content):
        stop = start + SECTOR - (position + start) % SECTOR
        if chance.random() < 0.5:
            left.write(content[start:stop], position + start)
        start = stop
