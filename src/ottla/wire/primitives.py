"""Variable-length integers and tagged fields, which Struct cannot encode.

Unsigned varints encode lengths, counts and tags (KIP-482). Zigzag varints (`svarint` for 32,
`svarlong` for 64 bits) encode numbers inside records. Readers take (buffer, position, end) and
return the value and the next position. They raise DecodeError if bytes are missing or a number
is too long.
"""

from __future__ import annotations

from typing import Final

from ottla.ports import Buffer

MAX_UINT32: Final = 0xFFFFFFFF
MAX_UINT64: Final = 0xFFFFFFFFFFFFFFFF
MOST_TAGS: Final = 64
"""How many tagged fields a struct may have. Kafka's have fewer than ten; skipping takes time."""


class DecodeError(ValueError):
    """The bytes do not follow the protocol: the sender has a bug or is hostile."""


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
    """Read an unsigned varint of at most 32 bits. Return it and the next position."""
    if position < end and (byte := buffer[position]) < 0x80:  # nearly always
        return byte, position + 1
    return _read(buffer, position, end, MAX_UINT32)


def read_svarint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 32 bits. Return it and the next position."""
    value, position = _read(buffer, position, end, MAX_UINT32)
    return (value >> 1) ^ -(value & 1), position


def read_svarlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits. Return it and the next position."""
    value, position = _read(buffer, position, end, MAX_UINT64)
    return (value >> 1) ^ -(value & 1), position


def uvarint(value: int) -> bytes:
    """Encode a number that is not negative as an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return ONE_BYTE[value & 0x7F | 0x80] + ONE_BYTE[value >> 7]
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def svarint(value: int) -> bytes:
    """Encode a number of at most 32 bits as a zigzag varint."""
    return uvarint((value << 1) ^ (value >> 31))


def svarlong(value: int) -> bytes:
    """Encode a number of at most 64 bits as a zigzag varint."""
    return uvarint((value << 1) ^ (value >> 63))


def skip_tags(buffer: Buffer, position: int, end: int) -> int:
    """Skip a section of tagged fields. Return the next position."""
    if position < end and not buffer[position]:  # nearly always
        return position + 1
    count, position = read_uvarint(buffer, position, end)
    if count > MOST_TAGS:
        cut_off = count > (end - position) // 2
        raise DecodeError(f"{count} tagged fields {'are cut off' if cut_off else 'are too many'}")
    for _ in range(count):
        _, position = read_uvarint(buffer, position, end)
        size, position = read_uvarint(buffer, position, end)
        position += size
        if position > end:
            raise DecodeError(f"tagged field of {size} bytes is cut off")
    return position


ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x100))
