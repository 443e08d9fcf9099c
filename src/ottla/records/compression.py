"""Kafka's four codecs, with a limit on the size of decompressed data.

Data is written in the formats of the Java clients: gzip; snappy in xerial's framing; LZ4 frames
with independent blocks (Kafka's Java reader refuses linked ones); zstd (KIP-110). Raw snappy,
which some clients send, is read too. Levels are those of KIP-390.

`cramjam` is imported on first use: a broker that passes batches through never loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.ports import Buffer
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    CorruptBatch,
    TooMuchData,
    parse_header,
    seal,
)
from ottla.records.declared_size import LZ4_MAGIC, LZ4_STORED, gzip_size, lz4_size, zstd_size
from ottla.records.xerial import compress_xerial, decompress_snappy

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
"""How large one batch may become: far more than clients send, far less than a zip bomb."""

_LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"  # independent blocks of 64 KiB, and a checksum
_LZ4_WITH_CHECKSUMS: Final = b"\x70\x40"  # the same blocks, each followed by a checksum
_LZ4_CHECKSUM: Final = 4
_SMALLEST_OUTPUT: Final = 4 * 1024
_GUESSED_EXPANSION: Final = 4
_PLAUSIBLE_EXPANSION: Final = 64
_GROWTH: Final = 8
_OUTPUT_FULL: Final = "failed to write whole buffer"  # Rust's WriteZero, as cramjam reports it
_Decoder: TypeAlias = Callable[[Buffer, bytearray], int]


def codec_name(codec: int) -> str:
    """Return the name that configurations have for a codec's number."""
    for name, number in CODECS.items():
        if number == codec:
            return name
    return f"unknown({codec})"


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`; level as in compression.<codec>.level, None for its default."""
    match codec:
        case 0:
            return bytes(data)
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
    """Decompress `data`. Raise CorruptBatch if it is damaged, TooMuchData above `limit` bytes."""
    match codec:
        case 0:
            if len(data) > limit:
                raise TooMuchData(0, f"{len(data)} bytes, more than the {limit} allowed")
            return data
        case 2:
            return decompress_snappy(data, limit)
        case 1 | 3 | 4:
            return _decompress_bounded(codec, data, limit)
    raise CorruptBatch(0, f"there is no compression codec {codec}")


def recompress(
    buffer: Buffer,
    start: int,
    end: int,
    codec: int,
    level: int | None = None,
    limit: int = DECOMPRESSED_LIMIT,
) -> bytearray:
    """Return the v2 batch at [start, end) with its records in another codec, and a new CRC.

    Records are not decoded; the rest of the header stays. Raise CorruptBatch if they cannot be
    decompressed, TooMuchData if that takes more than `limit` bytes.
    """
    compression = parse_header(buffer, start).compression
    with memoryview(buffer) as view:
        records = decompress(compression, view[start + HEADER_SIZE : end], limit)
        return replace_records(buffer, start, records, codec, level)


def replace_records(
    buffer: Buffer, start: int, records: Buffer, codec: int, level: int | None
) -> bytearray:
    """Return the v2 batch at `start` with these records, compressed by a codec, and a new CRC."""
    with memoryview(buffer) as view:
        result = bytearray(view[start : start + HEADER_SIZE])
    result += compress(codec, records, level)
    attributes = (parse_header(buffer, start).attributes & ~COMPRESSION_MASK) | codec
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
    return _without_block_checksums(memoryview(compressor.finish()))


def _without_block_checksums(frame: memoryview) -> bytes:
    """Return the frame without the checksums of blocks, as Java clients write it."""
    if bytes(frame[4:6]) != _LZ4_WITH_CHECKSUMS:
        return bytes(frame)
    parts: list[Buffer] = [_LZ4_HEADER]
    position = len(_LZ4_HEADER)
    while size := int.from_bytes(frame[position : position + 4], "little") & ~LZ4_STORED:
        parts.append(frame[position : position + 4 + size])
        position += 4 + size + _LZ4_CHECKSUM
    return b"".join((*parts, bytes(4)))


def _compress_zstd(data: Buffer, level: int) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, level=level))


def _decompress_bounded(codec: int, data: Buffer, limit: int) -> bytearray:
    """Decompress into a buffer of the declared or guessed size, then larger ones up to `limit`.

    The decoders write no further than the buffer; their own windows come on top (zstd: as
    much as was decompressed, 128 MiB at most).
    """
    import cramjam

    into = _DECODERS[codec]()
    size = _first_size(codec, data, limit)
    while True:
        output = bytearray(size)
        try:
            del output[into(data, output) :]
            return output
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptBatch(0, f"{codec_name(codec)} data is damaged: {error}") from None
        if size >= limit:
            raise TooMuchData(0, f"{codec_name(codec)} data takes more than {limit} bytes")
        size = min(limit, _GROWTH * size)
        del output  # before the larger one is allocated


def _first_size(codec: int, data: Buffer, limit: int) -> int:
    """Return the size that the data declares if it is plausible, otherwise a guess."""
    declared = _DECLARED[codec](data)
    if declared is None:
        size = _GUESSED_EXPANSION * len(data)
    else:
        size = min(declared, _PLAUSIBLE_EXPANSION * len(data))
    return min(limit, max(size, _SMALLEST_OUTPUT))


def _gzip_decoder() -> _Decoder:
    from cramjam import gzip

    return gzip.decompress_into


def _lz4_decoder() -> _Decoder:
    from cramjam import lz4

    return lz4.decompress_into


def _zstd_decoder() -> _Decoder:
    from cramjam import zstd

    return zstd.decompress_into


_DECODERS: Final = {GZIP: _gzip_decoder, LZ4: _lz4_decoder, ZSTD: _zstd_decoder}
_DECLARED: Final = {GZIP: gzip_size, LZ4: lz4_size, ZSTD: zstd_size}
