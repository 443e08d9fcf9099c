"""Decompresses LZ4 frames as Kafka's clients write them, block by block into the output.

The blocks of such a frame are independent of each other, so this needs no extra copy. Any
other frame (linked blocks, checksums, a dictionary) is decompressed by cramjam's streaming
decoder, which copies its input and its output.
"""

from __future__ import annotations

from typing import Final

import cramjam

from ottla.records.declared_size import LZ4_CONTENT_SIZE, LZ4_MAGIC, LZ4_STORED

_FORM: Final = 0b1111_0111  # all bits except the one for the content size
_INDEPENDENT: Final = 0b0110_0000  # version 01, independent blocks, no other feature
_DESCRIPTOR_END: Final = 6
_BLOCK_BYTES: Final = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}


def decompress_lz4_into(frame: memoryview, output: memoryview) -> int:
    """Decompress a frame into `output`. Return the size of its content.

    Raise cramjam.DecompressionError if the frame is damaged.
    """
    if bytes(frame[:4]) == LZ4_MAGIC and len(frame) > _DESCRIPTOR_END:
        largest = _BLOCK_BYTES.get(frame[5])
        if frame[4] & _FORM == _INDEPENDENT and largest is not None:
            used = _blocks_into(frame, output, largest)
            if used is not None:
                return used
    return int(cramjam.lz4.decompress_into(frame, output))


def _blocks_into(frame: memoryview, output: memoryview, largest: int) -> int | None:
    """Decompress the blocks. Return None if a block may not fit or ends after the frame.

    The streaming decoder then raises the right error.
    """
    position = _DESCRIPTOR_END + (8 if frame[4] & LZ4_CONTENT_SIZE else 0) + 1
    used = 0
    while True:
        size = int.from_bytes(frame[position : position + 4], "little")
        position += 4
        if size == 0:
            return used if position <= len(frame) else None
        block = frame[position : position + (size & ~LZ4_STORED)]
        position += size & ~LZ4_STORED
        if position > len(frame) or len(block) > largest or len(output) - used < largest:
            return None
        if size & LZ4_STORED:
            output[used : used + len(block)] = block
            used += len(block)
        else:
            used += cramjam.lz4.decompress_block_into(block, output[used:], output_len=largest)
