"""Snappy in the framing of Kafka's Java clients (snappy-java, "xerial"), and raw.

A frame is a 16-byte header (8-byte magic, version, lowest compatible version) and then blocks
of raw snappy, each preceded by its length as a big-endian int32. Several frames may follow each
other. Raw snappy declares its decompressed size, which is checked before a buffer is allocated.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.ports import Buffer
from ottla.records.batch import CorruptBatch, TooMuchData

_MAGIC: Final = b"\x82SNAPPY\x00"
_HEADER: Final = _MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK_BYTES: Final = 32 * 1024
_MAX_EXPANSION: Final = 32  # a copy of 64 bytes takes 3: a larger declared size is false
_length = Struct(">I")


def compress_xerial(data: Buffer) -> bytes:
    """Compress `data` to one xerial frame of blocks of 32 KiB."""
    from cramjam import snappy

    parts: list[bytes] = [_HEADER]
    with memoryview(data) as view:
        for position in range(0, len(view), _BLOCK_BYTES):
            block = bytes(snappy.compress_raw(view[position : position + _BLOCK_BYTES]))
            parts += (_length.pack(len(block)), block)
    return b"".join(parts)


def decompress_snappy(data: Buffer, limit: int) -> bytearray:
    """Decompress xerial frames or raw snappy. Raise CorruptBatch if damaged or above `limit`."""
    import cramjam

    view = memoryview(data)
    blocks = _blocks(view) if _at_header(view, 0) else [view]
    try:
        return _join(blocks, limit)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(0, f"snappy data is damaged: {error}") from None


def _at_header(view: memoryview, position: int) -> bool:
    return view[position : position + len(_MAGIC)].tobytes() == _MAGIC


def _blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    position, end = 0, len(view)
    while position < end:
        if _at_header(view, position):
            position += len(_HEADER)
            continue
        if end - position < _length.size:
            raise CorruptBatch(0, f"snappy data ends inside a block's length at {position}")
        (length,) = _length.unpack_from(view, position)
        position += _length.size
        if length > end - position:
            raise CorruptBatch(0, f"snappy block of {length} bytes at {position} passes the end")
        blocks.append(view[position : position + length])
        position += length
    if position > end:
        raise CorruptBatch(0, "snappy data ends inside its header")
    return blocks


def _join(blocks: list[memoryview], limit: int) -> bytearray:
    from cramjam import snappy

    lengths = [snappy.decompress_raw_len(block) for block in blocks]
    total = sum(lengths)
    if total > limit:
        raise TooMuchData(0, f"snappy data takes {total} bytes, more than the {limit} allowed")
    if total > _MAX_EXPANSION * sum(map(len, blocks)):
        raise CorruptBatch(0, f"snappy data declares {total} bytes, more than it can hold")
    output = bytearray(total)
    with memoryview(output) as target:
        position = 0
        for block, length in zip(blocks, lengths, strict=True):
            snappy.decompress_raw_into(block, target[position : position + length])
            position += length
    return output
