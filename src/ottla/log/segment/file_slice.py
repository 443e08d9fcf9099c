"""A range of a file: what a fetch answers with, and what `sendfile` is given."""

from __future__ import annotations

from typing import NamedTuple

from ottla.ports import File


class FileSlice(NamedTuple):
    """`length` bytes at `position`; keeps its file open as long as it lives."""

    file: File
    position: int
    length: int

    def read(self) -> bytes:
        """The bytes themselves, for answers too small to be worth a sendfile."""
        return self.file.pread(self.length, self.position)
