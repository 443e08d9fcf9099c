"""Ranges of files: the records of a Fetch response, and what `sendfile` sends."""

from __future__ import annotations

from typing import NamedTuple

from ottla.ports import File


class FileSlice(NamedTuple):
    """`length` bytes at `position`; keeps its file open as long as it lives."""

    file: File
    position: int
    length: int

    def read(self) -> bytes:
        """Return the bytes, for responses that are too small for sendfile."""
        return self.file.pread(self.length, self.position)


class FileSlices(NamedTuple):
    """Ranges one after the other, each of another file."""

    parts: list[FileSlice]
    length: int

    def read(self) -> bytes:
        """Return the bytes of all."""
        return b"".join([part.read() for part in self.parts])
