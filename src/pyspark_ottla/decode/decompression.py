"""Decompresses record batches into one buffer, which is reused.

The buffer grows if a single batch needs more, up to the limit for one batch
(`ottla.records.compression.DECOMPRESSED_LIMIT`). Sizes that the data declares are not trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import cramjam
import numpy as np

from ottla.records.batch import CorruptBatch
from ottla.records.compression import DECOMPRESSED_LIMIT, GZIP, LZ4, SNAPPY, ZSTD, codec_name
from ottla.records.declared_size import gzip_size, lz4_size, zstd_size
from ottla.records.xerial import decompress_snappy
from pyspark_ottla.decode.lz4_frame import decompress_lz4_into
from pyspark_ottla.jit import Bytes

SCRATCH_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 32 << 20
_GROWTH: Final = 4
_GUESSED_EXPANSION: Final = 4
_Decoder: TypeAlias = Callable[[memoryview, memoryview], int]
_OUTPUT_FULL: Final = "failed to write whole buffer"
_DECODERS: Final[dict[int, _Decoder]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: decompress_lz4_into,
    ZSTD: cramjam.zstd.decompress_into,
}
_DECLARED: Final = {GZIP: gzip_size, LZ4: lz4_size, ZSTD: zstd_size}


class NoRoom(Exception):
    """The rest of the buffer is too small. The batch may fit after `clear`."""


class Scratch:
    """A buffer of decompressed batches, one after the other. `used` is the end of the last."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(SCRATCH_BYTES, np.uint8)
        self.used = 0

    def clear(self) -> None:
        """Empty the buffer. Free it if it grew for one huge batch."""
        self.used = 0
        if len(self.data) > _KEPT_BYTES:
            self.data = np.empty(SCRATCH_BYTES, np.uint8)

    def add(self, codec: int, payload: memoryview) -> int:
        """Decompress a batch to the end of the buffer. Return its decompressed size.

        Raise NoRoom if the buffer holds other batches and the rest of it is too small. Raise
        CorruptBatch if the data is damaged or exceeds the limit.
        """
        if codec == SNAPPY:
            return self._add_snappy(payload)
        if codec not in _DECODERS:
            raise CorruptBatch(0, f"compression codec {codec} is unknown")
        if self.used and self._expected(codec, payload) > len(self.data) - self.used:
            raise NoRoom
        while True:
            try:
                size = _DECODERS[codec](payload, self.data[self.used :].data)
            except cramjam.DecompressionError as error:
                if _OUTPUT_FULL not in str(error):
                    reason = f"{codec_name(codec)} data is damaged: {error}"
                    raise CorruptBatch(0, reason) from None
                self._grow(codec_name(codec))
            else:
                self.used += size
                return size

    def _expected(self, codec: int, payload: memoryview) -> int:
        declared = _DECLARED[codec](payload)
        return _GUESSED_EXPANSION * len(payload) if declared is None else declared

    def _grow(self, name: str) -> None:
        if self.used:
            raise NoRoom
        if len(self.data) >= DECOMPRESSED_LIMIT:
            raise CorruptBatch(0, f"{name} data takes more than {DECOMPRESSED_LIMIT} bytes")
        self.data = np.empty(min(DECOMPRESSED_LIMIT, _GROWTH * len(self.data)), np.uint8)

    def _add_snappy(self, payload: memoryview) -> int:
        made = decompress_snappy(payload, DECOMPRESSED_LIMIT)
        size = len(made)
        if size > len(self.data) - self.used:
            if self.used:
                raise NoRoom
            self.data = np.empty(size, np.uint8)
        self.data[self.used : self.used + size] = np.frombuffer(made, np.uint8)
        self.used += size
        return size
