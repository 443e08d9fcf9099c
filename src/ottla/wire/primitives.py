"""Variable-length integers and tagged fields: the parts of the encoding that Struct cannot do.

Unsigned varints carry lengths, counts and tags (KIP-482); zigzag varints (`svarint` for 32,
`svarlong` for 64 bits) carry the numbers inside records. Readers take (buffer, position, end)
and return the value with the position after it; what is not there, or too long, is a DecodeError.
"""

from __future__ import annotations

from ottla.ports import Buffer

MAX_UINT32 = 0xFFFFFFFF
MAX_UINT64 = 0xFFFFFFFFFFFFFFFF


class DecodeError(ValueError):
    """Bytes that are not what the protocol says: the sender is broken or hostile."""


def _read(buffer: Buffer, position: int, end: int, limit: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if value > limit:
            break
        if byte < 0x80:
            return value, position
        shift += 7
        if limit >> shift == 0:
            break
    else:
        raise DecodeError("varint is cut off")
    raise DecodeError(f"varint has more than {limit.bit_length()} bits")


def read_uvarint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    return _read(buffer, position, end, MAX_UINT32)


def read_svarint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits, and the position after it."""
    value, position = _read(buffer, position, end, MAX_UINT32)
    return (value >> 1) ^ -(value & 1), position


def read_svarlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position after it."""
    value, position = _read(buffer, position, end, MAX_UINT64)
    return (value >> 1) ^ -(value & 1), position


def uvarint(value: int) -> bytes:
    """A number from 0 on as unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def svarint(value: int) -> bytes:
    """A number of at most 32 bits as zigzag varint."""
    return uvarint((value << 1) ^ (value >> 31))


def svarlong(value: int) -> bytes:
    """A number of at most 64 bits as zigzag varint."""
    return uvarint((value << 1) ^ (value >> 63))


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """The position after a section of tagged fields, none of them looked at."""
    count, position = read_uvarint(buffer, position, end)
    for _ in range(count):
        _, position = read_uvarint(buffer, position, end)
        size, position = read_uvarint(buffer, position, end)
        position += size
        if position > end:
            raise DecodeError(f"tagged field of {size} bytes is cut off")
    return position


ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
