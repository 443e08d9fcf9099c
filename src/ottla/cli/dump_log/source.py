"""A file that is read in bounded pieces, regardless of its size and of lengths in its headers."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final
from zlib import crc32

from ottla.records.batch import ATTRIBUTES_OFFSET, MAGIC_V2, Batch
from ottla.records.checksum import crc32c
from ottla.records.legacy import Message

CHUNK_BYTES: Final = 256 * 1024
_LEGACY_CRC_START: Final = 16


class Source:
    """An open file with one chunk of it in memory. `size` is its size when it was opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size
        self._chunk = b""
        self._chunk_start = 0

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def has_successor(self) -> bool:
        """Return True if the directory has a file of this kind with a higher offset in its name."""
        directory, name = os.path.split(self.path)
        kind = os.path.splitext(name)[1]
        return any(
            other > name and os.path.splitext(other)[1] == kind
            for other in os.listdir(directory or ".")
        )

    def read(self, position: int, length: int) -> bytes:
        """Return `length` bytes at `position`, or fewer at the end of the file."""
        parts = []
        length = min(length, self.size - position)
        while length > 0:
            part = os.pread(self._descriptor, length, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
            length -= len(part)
        return b"".join(parts)

    def chunk_at(self, position: int, length: int, ahead: int = CHUNK_BYTES) -> tuple[bytes, int]:
        """Return a chunk that has `length` bytes from `position`, and where they start in it.

        There are fewer bytes only at the end of the file. A new read has at least `ahead` bytes.
        """
        at = position - self._chunk_start
        end = min(position + length, self.size)
        if at < 0 or end > self._chunk_start + len(self._chunk):
            self._chunk = self.read(position, max(length, ahead))
            self._chunk_start, at = position, 0
        return self._chunk, at

    def crc_of(self, entry: Batch | Message) -> int:
        """Return the CRC of an entry, of the kind that its magic uses, reading it in pieces."""
        checksum = crc32c if entry.magic == MAGIC_V2 else crc32
        start = ATTRIBUTES_OFFSET if entry.magic == MAGIC_V2 else _LEGACY_CRC_START
        position, crc = entry.position + start, 0
        while position < entry.end:
            chunk, at = self.chunk_at(position, 1)
            piece = memoryview(chunk)[at : at + entry.end - position]
            if not piece:
                raise OSError(f"{self.path} became shorter while it was read")
            crc = checksum(piece, crc)
            position += len(piece)
        return crc
