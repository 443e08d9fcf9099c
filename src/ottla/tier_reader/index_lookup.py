"""Look-ups in the content of an offset index and of a time index."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


def position_for(content: bytes, base_offset: int, offset: int) -> int:
    """Return a position at or before the batch with an offset: that of the last entry before it."""
    count = len(content) // _OFFSET_ENTRY.size
    slot = bisect_right(
        range(count), offset - base_offset, key=lambda n: _offset_entry(content, n)[0]
    )
    return _offset_entry(content, slot - 1)[1] if slot else 0


def offset_to_search_from(content: bytes, base_offset: int, timestamp_ms: int) -> int:
    """Return an offset; all records before it are earlier than a timestamp."""
    count = len(content) // _TIME_ENTRY.size
    slot = bisect_right(range(count), timestamp_ms - 1, key=lambda n: _time_entry(content, n)[0])
    return base_offset + (_time_entry(content, slot - 1)[1] if slot else 0)


def offset_entries(content: bytes, base_offset: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and the position of each entry; raise ValueError if they do not rise."""
    if len(content) % _OFFSET_ENTRY.size:
        raise ValueError(f"{len(content)} bytes are no whole number of entries")
    last = (-1, -1)
    for relative, position in _OFFSET_ENTRY.iter_unpack(content):
        if relative <= last[0] or position <= last[1]:
            raise ValueError(f"the entry {(relative, position)} comes after {last}")
        last = (relative, position)
        yield base_offset + relative, position


def time_entries(content: bytes, base_offset: int) -> Iterator[tuple[int, int]]:
    """Yield the timestamp and the offset of each entry; raise ValueError if they do not rise."""
    if len(content) % _TIME_ENTRY.size:
        raise ValueError(f"{len(content)} bytes are no whole number of entries")
    last = (-1, -1)
    for timestamp, relative in _TIME_ENTRY.iter_unpack(content):
        if timestamp <= last[0] or relative < last[1]:
            raise ValueError(f"the entry {(timestamp, relative)} comes after {last}")
        last = (timestamp, relative)
        yield timestamp, base_offset + relative


def _offset_entry(content: bytes, slot: int) -> tuple[int, int]:
    relative, position = _OFFSET_ENTRY.unpack_from(content, slot * _OFFSET_ENTRY.size)
    return relative, position


def _time_entry(content: bytes, slot: int) -> tuple[int, int]:
    timestamp, relative = _TIME_ENTRY.unpack_from(content, slot * _TIME_ENTRY.size)
    return timestamp, relative
