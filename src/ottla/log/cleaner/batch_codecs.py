"""Compression of batches in the cleaner: the same formats as `records/compression.py`, faster.

Batches are small, so most of the time goes into setting a codec up. zstandard (part of the extra
`compact`) keeps its state from call to call. The blocks of an LZ4 frame are decompressed without
the decoder of frames. Whatever is unusual is left to `records/compression.py`.

The CRC of the batch was checked, so checksums inside of the data are not.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.ports import Buffer
from ottla.records.compression import (
    LZ4,
    ZSTD,
    ZSTD_DEFAULT_LEVEL,
    compress,
    decompress,
)
from ottla.records.declared_size import LZ4_MAGIC, LZ4_STORED, zstd_size

_LZ4_DESCRIPTION: Final = 7
"""Magic, flags, block size and a checksum."""
_LZ4_VERSION: Final = 0x40
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_64K: Final = 0x40
_BLOCK_BYTES: Final = 64 * 1024
_ARENA_BYTES: Final = 5 * 1024 * 1024
_LIKELY_EXPANSION: Final = 8
_LIKELY_BYTES: Final = 64 * 1024
_MOST_AT_ONCE: Final = 16 * 1024 * 1024


class BatchCodecs:
    """The codecs of one clean."""

    def __init__(self) -> None:
        self._zstd_compressor: Any = None
        self._zstd_decompressor: Any = None
        self._arena = bytearray()
        """Holds the records of batches that are looked at together, so that they are one buffer."""
        self._used = 0
        try:
            import zstandard
        except ImportError:
            return
        self._zstd_error = zstandard.ZstdError
        self._zstd_compressor = zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL)
        self._zstd_decompressor = zstandard.ZstdDecompressor()

    def compress(self, codec: int, records: bytes) -> bytes:
        """Compress the records of a batch."""
        if codec == ZSTD and self._zstd_compressor is not None:
            compressed: bytes = self._zstd_compressor.compress(records)
            return compressed
        return compress(codec, records)

    def forget(self) -> None:
        """Use the memory of what was decompressed so far again."""
        self._used = 0

    def decompress(self, codec: int, data: memoryview) -> tuple[Buffer, int, int]:
        """Decompress the records of a batch; CorruptBatch if they are damaged.

        Return a buffer, and where the records begin and end in it. They stay until `forget`.
        """
        found: Buffer | None = None
        if codec == LZ4:
            end = self._decompress_lz4(data)
            if end is not None:
                start, self._used = self._used, end
                return self._arena, start, end
        elif codec == ZSTD and self._zstd_decompressor is not None:
            found = self._decompress_zstd(data)
        if found is None:
            found = decompress(codec, data)
        return found, 0, len(found)

    def _decompress_zstd(self, data: memoryview) -> bytes | None:
        """Return what a usual frame contains, None for all others."""
        declared = zstd_size(data)
        if declared is not None and declared > _MOST_AT_ONCE:
            return None  # so much memory would be taken at once, whatever is in the frame
        size = min(max(_LIKELY_EXPANSION * len(data), _LIKELY_BYTES), _MOST_AT_ONCE)
        try:
            found: bytes = self._zstd_decompressor.decompress(
                data, max_output_size=size, allow_extra_data=False
            )
        except self._zstd_error:
            return None
        return found

    def _decompress_lz4(self, data: memoryview) -> int | None:
        """Decompress a frame of independent blocks of 64 KiB into the arena.

        Return where its content ends there. Return None for other frames, and if there is no room.
        """
        if (
            len(data) < _LZ4_DESCRIPTION
            or bytes(data[:4]) != LZ4_MAGIC
            or data[4] != _LZ4_VERSION | _LZ4_INDEPENDENT
            or data[5] != _LZ4_BLOCK_64K
        ):
            return None
        import cramjam

        if not self._arena:
            self._arena = bytearray(_ARENA_BYTES)
        position, end, at = _LZ4_DESCRIPTION, len(data), self._used
        while position + 4 <= end:
            size = int.from_bytes(data[position : position + 4], "little")
            position += 4
            if not size:
                return at if position == end else None
            following = position + (size & ~LZ4_STORED)
            if following > end or at + _BLOCK_BYTES > len(self._arena):
                return None
            block = data[position:following]
            if size & LZ4_STORED:
                if len(block) > _BLOCK_BYTES:
                    return None
                self._arena[at : at + len(block)] = block
                at += len(block)
            else:
                target = memoryview(self._arena)[at : at + _BLOCK_BYTES]
                try:
                    at += cramjam.lz4.decompress_block_into(block, target, output_len=_BLOCK_BYTES)
                except cramjam.DecompressionError:
                    return None
            position = following
        return None
