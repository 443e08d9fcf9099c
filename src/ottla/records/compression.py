"""The four codecs of Kafka, with the size of what comes out bounded before it is made.

Written as Java clients write and read them: gzip; snappy in xerial's framing; LZ4 frames
with independent blocks (Kafka's Java reader refuses linked ones); zstd (KIP-110). Read
besides: raw snappy, which some clients send. Levels are those of KIP-390.

`cramjam` is imported on first use: a broker that passes batches through never loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.ports import Buffer
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    CorruptBatch,
    parse_header,
    seal,
)
from ottla.records.xerial import compress_xerial, decompress_snappy

if TYPE_CHECKING:
    from cramjam import Buffer as CramBuffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODECS: Final = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

GZIP_DEFAULT_LEVEL: Final = -1
LZ4_DEFAULT_LEVEL: Final = 9
ZSTD_DEFAULT_LEVEL: Final = 3

DECOMPRESSED_LIMIT: Final = 256 * 1024 * 1024
"""What one batch may expand to: far more than clients put into one, far less than a bomb."""

_FIRST_GUESS: Final = 64 * 1024


def codec_name(codec: int) -> str:
    """The name of a codec's number as configurations spell it."""
    for name, number in CODECS.items():
        if number == codec:
            return name
    return f"unknown({codec})"


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the given codec; level as in compression.<codec>.level, None for its default."""
    match codec:
        case 0:
            return data
        case 1:
            return _compress_gzip(data, GZIP_DEFAULT_LEVEL if level is None else level)
        case 2:
            return compress_xerial(data)
        case 3:
            return _compress_lz4(data, LZ4_DEFAULT_LEVEL if level is None else level)
        case 4:
            return _compress_zstd(data, ZSTD_DEFAULT_LEVEL if level is None else level)
    raise ValueError(f"there is no compression codec {codec}")


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_LIMIT) -> Buffer:
    """What `data` holds; CorruptBatch when it is damaged or would take more than `limit` bytes."""
    match codec:
        case 0:
            if len(data) > limit:
                raise CorruptBatch(0, f"{len(data)} bytes, more than the {limit} allowed")
            return data
        case 2:
            return decompress_snappy(data, limit)
        case 1 | 3 | 4:
            return _decompress_bounded(codec, data, limit)
    raise CorruptBatch(0, f"there is no compression codec {codec}")


def recompress(
    buffer: Buffer, start: int, end: int, codec: int, level: int | None = None
) -> bytearray:
    """The v2 batch at [start, end) with its records in another codec, CRC sealed.

    Records are not decoded; everything else in the header stays. Raises CorruptBatch when
    they cannot be decompressed.
    """
    batch = parse_header(buffer, start)
    with memoryview(buffer) as view:
        records = decompress(batch.compression, view[start + HEADER_SIZE : end])
        result = bytearray(view[start : start + HEADER_SIZE])
        result += compress(codec, records, level)
    attributes = (batch.attributes & ~COMPRESSION_MASK) | codec
    result[LENGTH_OFFSET:LOG_OVERHEAD] = (len(result) - LOG_OVERHEAD).to_bytes(4, "big")
    result[ATTRIBUTES_OFFSET : ATTRIBUTES_OFFSET + 2] = attributes.to_bytes(2, "big", signed=True)
    seal(result, 0, len(result))
    return result


def _compress_gzip(data: Buffer, level: int) -> bytes:
    import cramjam

    return bytes(cramjam.gzip.compress(data, level=6 if level < 0 else level))


def _compress_lz4(data: Buffer, level: int) -> bytes:
    import cramjam

    # Kafka's default level means the fast compressor, every other one the high compressor.
    compressor = cramjam.lz4.Compressor(
        level=0 if level == LZ4_DEFAULT_LEVEL else max(level, 3),
        content_checksum=False,
        block_linked=False,
    )
    compressor.compress(bytes(data))  # the one call that takes bytes only
    return bytes(compressor.finish())


def _compress_zstd(data: Buffer, level: int) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, level=level))


def _decompress_bounded(codec: int, data: Buffer, limit: int) -> bytearray:
    """Decompress into a buffer of a guessed size, larger ones after it, up to `limit`."""
    import cramjam

    into: Callable[[Buffer, bytearray | CramBuffer], int] = {
        GZIP: cramjam.gzip.decompress_into,
        LZ4: cramjam.lz4.decompress_into,
        ZSTD: cramjam.zstd.decompress_into,
    }[codec]
    size = min(limit, max(_FIRST_GUESS, 8 * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = into(data, output)
        except cramjam.DecompressionError as error:
            if size >= limit:
                raise CorruptBatch(0, _failure(codec, str(error), limit)) from None
            size = min(limit, 16 * size)
        else:
            del output[written:]
            return output


def _failure(codec: int, error: str, limit: int) -> str:
    if "whole buffer" in error:
        return f"{codec_name(codec)} data expands to more than the {limit} bytes allowed"
    return f"{codec_name(codec)} data is damaged: {error}"
