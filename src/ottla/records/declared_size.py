"""The decompressed size that compressed data declares, if its format can.

This is only a hint for the size of the first buffer, because the sender can write anything.
"""

from __future__ import annotations

from typing import Final

from ottla.ports import Buffer

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_CONTENT_SIZE: Final = 0x08
LZ4_STORED: Final = 1 << 31  # in the size of a block: it is not compressed
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SINGLE_SEGMENT: Final = 0x20


def gzip_size(data: Buffer) -> int | None:
    """Return the size at the end of the last member (RFC 1952), modulo 2**32."""
    if len(data) < 18:
        return None
    return int.from_bytes(data[-4:], "little")


def lz4_size(data: Buffer) -> int | None:
    """Return the content size of the first frame, or None if it has none."""
    if len(data) < 15 or bytes(data[:4]) != LZ4_MAGIC or not data[4] & LZ4_CONTENT_SIZE:
        return None
    return int.from_bytes(data[6:14], "little")


def zstd_size(data: Buffer) -> int | None:
    """Return the content size of the first frame (RFC 8878, 3.1.1.1), or None if it has none."""
    if len(data) < 18 or bytes(data[:4]) != _ZSTD_MAGIC:
        return None
    descriptor = data[4]
    single_segment = bool(descriptor & _ZSTD_SINGLE_SEGMENT)
    length = (int(single_segment), 2, 4, 8)[descriptor >> 6]
    if not length:
        return None
    start = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[start : start + length], "little")
    return size + 256 if length == 2 else size
