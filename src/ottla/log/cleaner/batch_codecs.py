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
from ottla.records.declared_size import LZ4_MAGIC, LZ4_STORED

_LZ4_DESCRIPTION: Final = 7
"""Magic, flags, block size and a checksum."""
_LZ4_VERSION: Final = 0x40
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_64K: Final = 0x40
_BLOCK_BYTES: Final = 64 * 1024
_LIKELY_EXPANSION: Final = 8
_LIKELY_BYTES: Final = 64 * 1024
_MOST_AT_ONCE: Final = 16 * 1024 * 1024


class BatchCodecs:
    """The codecs of one clean."""

    def __init__(self) -> None:
        self._zstd_compressor: Any = None
        self._zstd_decompressor: Any = None
        self._block = bytearray(_BLOCK_BYTES)
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

    def decompress(self, codec: int, data: memoryview) -> Buffer:
        """Decompress the records of a batch; CorruptBatch if they are damaged."""
        found: Buffer | None = None
        if codec == LZ4:
            found = self._decompress_lz4(data)
        elif codec == ZSTD and self._zstd_decompressor is not None:
            found = self._decompress_zstd(data)
        return decompress(codec, data) if found is None else found

    def _decompress_zstd(self, data: memoryview) -> bytes | None:
        """Return what a usual frame contains, None for all others."""
        size = min(max(_LIKELY_EXPANSION * len(data), _LIKELY_BYTES), _MOST_AT_ONCE)
        try:
            found: bytes = self._zstd_decompressor.decompress(
                data, max_output_size=size, allow_extra_data=False
            )
        except self._zstd_error:
            return None
        return found if len(found) <= _MOST_AT_ONCE else None

    def _decompress_lz4(self, data: memoryview) -> bytes | None:
        """Return what a frame of independent blocks of 64 KiB contains, None for all others."""
        if (
            len(data) < _LZ4_DESCRIPTION
            or bytes(data[:4]) != LZ4_MAGIC
            or data[4] != _LZ4_VERSION | _LZ4_INDEPENDENT
            or data[5] != _LZ4_BLOCK_64K
        ):
            return None
        import cramjam

        parts: list[bytes] = []
        position, end = _LZ4_DESCRIPTION, len(data)
        while position + 4 <= end:
            size = int.from_bytes(data[position : position + 4], "little")
            position += 4
            if not size:
                return b"".join(parts) if position == end else None
            following = position + (size & ~LZ4_STORED)
            if following > end:
                return None
            block = data[position:following]
            if size & LZ4_STORED:
                parts.append(bytes(block))
            else:
                try:
                    count = cramjam.lz4.decompress_block_into(
                        block, self._block, output_len=_BLOCK_BYTES
                    )
                except cramjam.DecompressionError:
                    return None
                parts.append(bytes(memoryview(self._block)[:count]))
            position = following
        return None
