"""Check many records of the same layout at once.

Records have the same layout if all lengths in them are equal, as with values of one size: then
only timestamps and offset deltas differ. A slice with a step, `data[at:end:size]`, takes the same
byte of each record. One comparison checks it for all of them, at the speed of C.

A thousand records are tried first. If they have the layout all others are tried, else fewer.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ottla.records.varint import read_int, read_long

SHORTEST_RUN: Final = 16
_FIRST_RUN: Final = 1024
_SMALLER: Final = 4
_MAX_HEADERS: Final = 8
_MAX_LENGTH_BYTES: Final = 5

_HIGH: Final = bytes(range(0x80, 0x100))
# The bytes of offset deltas as varints. The first byte repeats after 64 deltas.
_ONLY: Final = bytes(range(0, 0x80, 2))
_FIRST: Final = bytes(range(0x80, 0x100, 2)) * 129
_SECOND: Final = b"".join(bytes((number,)) * 64 for number in range(0x80))
_SECOND_OF_THREE: Final = b"".join(bytes((number,)) * 64 for number in range(0x80, 0x100))
_WITH_ONE_BYTE: Final = 64
_WITH_TWO_BYTES: Final = 8192
_WITH_THREE_BYTES: Final = 1 << 20


Shape: TypeAlias = tuple[int, int, int]
"""Of a record without headers, and with a key below 64 bytes: its size, how many bytes its
timestamp delta has, and the first byte of the length of its key."""


class Layout:
    """Where a record has its numbers, counted from its first byte."""

    __slots__ = ("fixed", "key", "offset", "size", "timestamp")

    def __init__(
        self,
        size: int,
        fixed: list[tuple[int, bytes | bytearray]],
        timestamp: int,
        offset: int,
        key: int,
    ) -> None:
        self.size = size
        self.fixed = fixed
        """The positions and bytes of all lengths and counts."""
        self.timestamp = timestamp
        """Where the timestamp delta begins; the offset delta follows it."""
        self.offset = offset
        self.key = key
        """Where the length of the key begins, after the offset delta."""


_MAX_KNOWN: Final = 1024

keyless_prefixes: Final[dict[int, bytes]] = {}
"""Sizes of records without key and headers, and how such a record begins: up to its value.

Of the first record of its batch: its timestamp delta and its offset delta are 0. Sizes are added
when they are first seen.
"""
_keyless_layouts: Final[dict[int, Layout]] = {}
_usual_layouts: Final[dict[tuple[Shape, int], Layout]] = {}


def are_keyless(data: bytes | bytearray, start: int, end: int, count: int) -> bool:
    """Return True if [start, end) has `count` records of one size without key and headers.

    At most 64 of them, with timestamp deltas of one byte. The answer may be False although there
    are such records: this is a short cut for the most common small batches.
    """
    if not 0 < count <= _WITH_ONE_BYTE:
        return False
    size, rest = divmod(end - start, count)
    if size <= 0 or data[end - 1]:
        return False
    prefix = keyless_prefixes.get(size)
    if prefix is None:
        prefix = add_keyless(size)
    if rest or not prefix or not data.startswith(prefix, start):
        return False
    return count == 1 or _have_layout(data, start, _keyless_layouts[size], 0, count)


def add_keyless(size: int) -> bytes:
    """Return how a record of this size without key and headers begins; b"" if there is none."""
    if len(keyless_prefixes) >= _MAX_KNOWN:
        keyless_prefixes.clear()
        _keyless_layouts.clear()
    for length_bytes in range(1, _MAX_LENGTH_BYTES):
        length = _varint(size - length_bytes)
        for value_bytes in range(1, _MAX_LENGTH_BYTES):
            value = _varint(size - length_bytes - value_bytes - 5)
            if len(length) == length_bytes and len(value) == value_bytes:
                prefix = length + b"\0\0\0\1" + value
                key = length_bytes + 3
                numbers = [*range(length_bytes), *range(key, len(prefix))]
                fixed = [(at, prefix[at : at + 1]) for at in numbers]
                layout = Layout(size, [*fixed, (size - 1, b"\0")], key - 2, key - 1, key)
                keyless_prefixes[size], _keyless_layouts[size] = prefix, layout
                return prefix
    keyless_prefixes[size] = b""
    return b""


def _varint(length: int) -> bytes:
    """Return a length as a varint; b"" if it is negative."""
    if length < 0:
        return b""
    number, encoded = length << 1, bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def usual_layout(data: bytes | bytearray, start: int, index: int, shape: Shape) -> Layout | None:
    """Return the layout of the record at `start`, which has been checked and has no headers.

    Such a layout depends on the shape and the record's index only, so it is kept.
    """
    known = (shape, _delta_bytes(index))
    layout = _usual_layouts.get(known)
    if layout is None:
        layout = layout_of(data, start)
        if layout is not None:
            if len(_usual_layouts) >= _MAX_KNOWN:
                _usual_layouts.clear()
            _usual_layouts[known] = layout
    return layout


def layout_of(data: bytes | bytearray, start: int) -> Layout | None:
    """Return the layout of the record at `start`, which has been checked.

    None if it has too many headers, or if its offset delta takes more bytes than it needs.
    """
    size, body = read_int(data, start)
    offset = read_long(data, body + 1)[1]
    delta, key = read_int(data, offset)
    if key - offset != _delta_bytes(delta):
        return None
    numbers = [*range(start, body)]
    after_key = _skip_field(data, key, numbers)
    after_value = _skip_field(data, after_key, numbers)
    headers, at = read_int(data, after_value)
    if headers > _MAX_HEADERS:
        return None
    numbers += range(after_value, at)
    for _ in range(2 * headers):
        at = _skip_field(data, at, numbers)
    fixed = [(at - start, data[at : at + 1]) for at in numbers]
    return Layout(body + size - start, fixed, body + 1 - start, offset - start, key - start)


def run_length(
    data: bytes | bytearray, start: int, end: int, layout: Layout, index: int, most: int
) -> int:
    """Return how many records from `start` on surely have this layout, `most` at most.

    `index` is the number of the first one. There may be more: the caller goes on with those.
    """
    found = 0
    tried = _FIRST_RUN
    most = min(most, (end - start) // layout.size, _same_delta_bytes(index))
    while tried >= SHORTEST_RUN and most - found >= SHORTEST_RUN:
        count = min(tried, most - found)
        if _have_layout(data, start + found * layout.size, layout, index + found, count):
            found += count
            if tried == _FIRST_RUN:
                tried = most
        else:
            tried = count // _SMALLER
    return found


def _have_layout(
    data: bytes | bytearray, start: int, layout: Layout, index: int, count: int
) -> bool:
    size, offset = layout.size, layout.offset
    end = start + count * size
    for at, byte in layout.fixed:
        if data[start + at : end : size] != byte * count:
            return False
    for at in range(layout.timestamp, offset - 1):
        if data[start + at : end : size].translate(None, _HIGH):
            return False
    if not data[start + offset - 1 : end : size].isascii():
        return False
    deltas = [data[start + at : end : size] for at in range(offset, layout.key)]
    return deltas == _expected_deltas(index, count)


def _expected_deltas(index: int, count: int) -> list[bytes]:
    """Return the bytes of the offset deltas from `index` on: first bytes, second bytes, ..."""
    if index < _WITH_ONE_BYTE:
        return [_ONLY[index : index + count]]
    first = _FIRST[index % 64 : index % 64 + count]
    if index < _WITH_TWO_BYTES:
        return [first, _SECOND[index : index + count]]
    within = index % _WITH_TWO_BYTES
    second = _SECOND_OF_THREE[within : within + count]
    return [first, second, bytes((index // _WITH_TWO_BYTES,)) * count]


def _delta_bytes(delta: int) -> int:
    """Return how many bytes an offset delta takes, 0 if runs do not go so far."""
    if delta < _WITH_ONE_BYTE:
        return 1
    if delta < _WITH_TWO_BYTES:
        return 2
    return 3 if delta < _WITH_THREE_BYTES else 0


def _same_delta_bytes(index: int) -> int:
    """Return how many offset deltas from `index` on differ in the lower bytes only."""
    if index < _WITH_ONE_BYTE:
        return _WITH_ONE_BYTE - index
    return _WITH_TWO_BYTES - index % _WITH_TWO_BYTES


def _skip_field(data: bytes | bytearray, at: int, numbers: list[int]) -> int:
    """Add where the length of a field is, and return where the field ends."""
    length, content = read_int(data, at)
    numbers += range(at, content)
    return content + max(length, 0)
