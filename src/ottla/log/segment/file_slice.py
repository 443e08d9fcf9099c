"""A range of a file: the records of a Fetch response, and what `sendfile` sends."""

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
