"""Kafka's zigzag varints, as its Java clients read them: an int has 5 bytes at most, a long 10."""

from __future__ import annotations

from typing import Final

from ottla.records.batch import CorruptBatch

_INT_BYTES: Final = 5
_LONG_BYTES: Final = 10
NULL: Final = -1


def read_int(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the int at a position and the position after it; IndexError past the end."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    number, after = _read(data, position, _INT_BYTES)
    if number >> 32:
        raise CorruptBatch(0, "a number takes more than 32 bits")
    return (number >> 1) ^ -(number & 1), after


def read_long(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the long at a position and the position after it; IndexError past the end."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    number, after = _read(data, position, _LONG_BYTES)
    if number >> 64:
        raise CorruptBatch(0, "a number takes more than 64 bits")
    return (number >> 1) ^ -(number & 1), after


def read_length(data: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Return the length of a field and where it begins; the field ends at `end` at the latest."""
    length, start = read_int(data, position)
    if length < NULL or start + length > end:
        raise CorruptBatch(0, f"a field of {length} bytes has {end - start} left")
    return length, start


def _read(data: bytes | bytearray, position: int, most: int) -> tuple[int, int]:
    number = shift = 0
    for at in range(position, position + most):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7
    raise CorruptBatch(0, f"a number takes more than {most} bytes")
