"""Compression of batches in the cleaner: the same formats as `records/compression.py`, faster.

Batches are small, so most of the time goes into setting a codec up. zstandard (part of the extra
`compact`) keeps its state from call to call. It works on many batches in two threads, because it
takes more time than everything else in a clean together. The blocks of an LZ4 frame are compressed
and decompressed without its frames; lz4 (part of the same extra) compresses some data in a third of
the time that cramjam takes. Whatever is unusual is left to `records/compression.py`.

The CRC of the batch was checked, so checksums inside of the data are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from ottla.ports import Buffer, start_beside
from ottla.records.batch import CorruptBatch
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
LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"
"""Independent blocks of 64 KiB, no checksums."""
_LZ4_END: Final = bytes(4)
LZ4_ONE_BLOCK: Final = len(LZ4_HEADER) + 4, len(_LZ4_END)
"""How many bytes are before and after the block of a frame with one block."""
_LZ4_VERSION: Final = 0x40
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_64K: Final = 0x40
_BLOCK_BYTES: Final = 64 * 1024
_ARENA_BYTES: Final = 4 * 1024 * 1024
_PADDING: Final = 16
"""How many bytes of the arena stay unused at its end: a key may be read a word at a time."""
_BYTES_TOGETHER: Final = 512 * 1024
"""How many compressed bytes two threads decompress together."""
_LIKELY_EXPANSION: Final = 8
_LIKELY_BYTES: Final = 64 * 1024
_PLAUSIBLE_EXPANSION: Final = 64


class BatchCodecs:
    """The codecs of one clean."""

    def __init__(self) -> None:
        self._zstd: _Zstd | None = None
        self._other_zstd: _Zstd | None = None
        """For the second thread."""
        self.arena = bytearray()
        """Holds the records of batches that are looked at together, so that they are one buffer."""
        self._used = 0
        self._compress_block = _lz4_compressor()
        try:
            self._zstd, self._other_zstd = _Zstd(), _Zstd()
        except ImportError:
            pass

    def compress(self, codec: int, records: bytes) -> bytes:
        """Compress the records of a batch."""
        if codec == ZSTD and self._zstd is not None:
            return self._zstd.compress([records])[0]
        if codec == LZ4:
            return self._compress_lz4(records)
        return compress(codec, records)

    def compress_all(self, codecs: Sequence[int], contents: Sequence[bytes]) -> list[bytes]:
        """Compress the records of batches, each with its codec."""
        if self._zstd is None or self._other_zstd is None or set(codecs) != {ZSTD}:
            return [self.compress(*each) for each in zip(codecs, contents, strict=True)]
        half = len(contents) // 2
        others = start_beside(partial(self._other_zstd.compress, contents[half:]))
        return self._zstd.compress(contents[:half]) + others()

    def _compress_lz4(self, records: bytes) -> bytes:
        """Return a frame as `records/compression.py` makes it, without its encoder of frames."""
        compress_block = self._compress_block
        if 0 < len(records) <= _BLOCK_BYTES:  # nearly always
            made = compress_block(records)
            if len(made) < len(records):
                head = len(made).to_bytes(4, "little")
                return b"".join((LZ4_HEADER, head, made, _LZ4_END))
        parts: list[Buffer] = [LZ4_HEADER]
        for start in range(0, len(records), _BLOCK_BYTES):
            block = records[start : start + _BLOCK_BYTES]
            made = compress_block(block)
            if len(made) < len(block):
                parts += (len(made).to_bytes(4, "little"), made)
            else:
                parts += ((len(block) | LZ4_STORED).to_bytes(4, "little"), block)
        parts.append(_LZ4_END)
        return b"".join(parts)

    def forget(self) -> None:
        """Use the memory of what was decompressed so far again."""
        self._used = 0
        if len(self.arena) > _ARENA_BYTES:
            self.arena = bytearray(_ARENA_BYTES)

    def decompress(self, codec: int, data: memoryview) -> tuple[int, int]:
        """Decompress the records of a batch into the arena; raise CorruptBatch if they are damaged.

        Return where they begin and end there. They stay until `forget`.
        """
        found = None
        if codec == ZSTD and self._zstd is not None:
            found = self._zstd.decompress([data])[0]
        return self._place(codec, data, found)

    def decompress_blocks(
        self, data: memoryview, starts: Sequence[int], ends: Sequence[int], most: int
    ) -> list[tuple[int, int]]:
        """Decompress the LZ4 blocks at data[start:end] into the arena, until it has `most` bytes.

        Return where their contents are, of the first ones; raise CorruptBatch if one is damaged.
        """
        import cramjam

        self._make_room(self._used + most + _BLOCK_BYTES)
        decompress_block, arena = cramjam.lz4.decompress_block_into, memoryview(self.arena)
        found, at = [], self._used
        try:
            for start, end in zip(starts, ends, strict=True):
                room = arena[at : at + _BLOCK_BYTES]
                size = decompress_block(data[start:end], room, output_len=_BLOCK_BYTES)
                found.append((at, at + size))
                at += size
                if at >= most:
                    break
        except cramjam.DecompressionError as error:
            raise CorruptBatch(0, f"lz4 data is damaged: {error}") from None
        self._used = at
        return found

    def decompress_each(
        self, codecs: Sequence[int], batches: Sequence[memoryview]
    ) -> Iterator[tuple[int, int]]:
        """Decompress batches one after the other, each when the next result is asked for."""
        first = 0
        while first < len(batches):
            upto, size = first, 0
            while upto < len(batches) and size < _BYTES_TOGETHER:
                size += len(batches[upto])
                upto += 1
            kinds, some, first = codecs[first:upto], batches[first:upto], upto
            if self._zstd is None or self._other_zstd is None or set(kinds) != {ZSTD}:
                yield from (self.decompress(*each) for each in zip(kinds, some, strict=True))
                continue
            half = len(some) // 2
            others = start_beside(partial(self._other_zstd.decompress, some[half:]))
            found = self._zstd.decompress(some[:half])
            found += others()
            yield from (self._place(ZSTD, *each) for each in zip(some, found, strict=True))

    def _place(self, codec: int, data: memoryview, found: Buffer | None) -> tuple[int, int]:
        """Put what was found in a batch into the arena; decompress it if that is still to do."""
        start = self._used
        end = self._decompress_lz4(data) if codec == LZ4 else None
        if end is None:
            found = decompress(codec, data) if found is None else found
            end = start + len(found)
            self._make_room(end)
            self.arena[start:end] = found
        self._used = end
        return start, end

    def _make_room(self, end: int) -> None:
        """Enlarge the arena, so that something can be written up to `end`."""
        if end + _PADDING > len(self.arena):
            self.arena += bytes(max(end + _PADDING, _ARENA_BYTES) - len(self.arena))

    def _decompress_lz4(self, data: memoryview) -> int | None:
        """Decompress a frame of independent blocks of 64 KiB into the arena.

        Return where its content ends there. Return None for other frames.
        """
        if (
            len(data) < _LZ4_DESCRIPTION
            or bytes(data[:4]) != LZ4_MAGIC
            or data[4] != _LZ4_VERSION | _LZ4_INDEPENDENT
            or data[5] != _LZ4_BLOCK_64K
        ):
            return None
        import cramjam

        decompress_block = cramjam.lz4.decompress_block_into
        position, end, at = _LZ4_DESCRIPTION, len(data), self._used
        while position + 4 <= end:
            size = int.from_bytes(data[position : position + 4], "little")
            position += 4
            if not size:
                return at if position == end else None
            following = position + (size & ~LZ4_STORED)
            if following > end:
                return None
            self._make_room(at + _BLOCK_BYTES)
            block = data[position:following]
            if size & LZ4_STORED:
                if len(block) > _BLOCK_BYTES:
                    return None
                self.arena[at : at + len(block)] = block
                at += len(block)
            else:
                with memoryview(self.arena) as arena, arena[at : at + _BLOCK_BYTES] as target:
                    try:
                        at += decompress_block(block, target, output_len=_BLOCK_BYTES)
                    except cramjam.DecompressionError:
                        return None
            position = following
        return None


def _lz4_compressor() -> Callable[[bytes], bytes]:
    """Return what compresses a block of LZ4."""
    try:
        from lz4.block import compress
    except ImportError:
        import cramjam

        room = bytearray(cramjam.lz4.compress_block_bound(bytes(_BLOCK_BYTES)))

        def compress_with_cramjam(block: bytes) -> bytes:
            size = cramjam.lz4.compress_block_into(block, room, store_size=False)
            return bytes(room[:size])

        return compress_with_cramjam
    made: Callable[[bytes], bytes] = partial(compress, store_size=False)
    return made


class _Zstd:
    """A compressor and a decompressor for one thread; ImportError without zstandard."""

    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._compressor = zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()

    def compress(self, contents: Sequence[bytes]) -> list[bytes]:
        """Compress each of these."""
        return [self._compressor.compress(content) for content in contents]

    def decompress(self, frames: Sequence[memoryview]) -> list[bytes | None]:
        """Decompress each of these; None for frames that are unusual or damaged."""
        return [self._decompress(frame) for frame in frames]

    def _decompress(self, frame: memoryview) -> bytes | None:
        declared = zstd_size(frame)
        if declared is not None and declared > _PLAUSIBLE_EXPANSION * len(frame):
            return None  # so much memory would be taken at once, whatever is in the frame
        size = max(_LIKELY_EXPANSION * len(frame), _LIKELY_BYTES)
        try:
            return self._decompressor.decompress(
                frame, max_output_size=size, allow_extra_data=False
            )
        except self._error:
            return None
