"""The files of a clean that a helper process opens itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from errno import ESRCH
from typing import Final

from ottla.ports import Buffer, HelperPace

_MOST_BUFFERS: Final = 1024
"""How many buffers one write may have (IOV_MAX)."""
_CALL_BYTES: Final = 256 * 1024
"""How much one call reads or writes while clients are served.

Linux may let nobody else have the processor before the call ends.
"""
_DISK_BYTES: Final = 1024 * 1024
"""The system begins to write to disk after this many bytes, if it does so early."""


class OpenFile:
    """A file that a task reads."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def of(cls, fd: int) -> OpenFile:
        """Return a file that is open already."""
        made = cls.__new__(cls)
        made._fd = fd
        return made

    def fileno(self) -> int:
        """Return the number of the open file."""
        return self._fd

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target` from a position on; return how many bytes there were."""
        filled = 0
        while filled < len(target):
            end = filled + _CALL_BYTES if HelperPace.beside_clients else len(target)
            count = _read_at(self._fd, target[filled:end], position + filled)
            if not count:
                break
            filled += count
        return filled

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OutputFile:
    """A file that a task writes. The broker has created it, and forces it to disk."""

    def __init__(self, broker: int, path: str) -> None:
        if os.getppid() != broker:  # another broker may use the same names by now
            raise ProcessLookupError(ESRCH, "the broker is gone")
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._begun = 0
        """Up to where the system has begun to write to disk."""

    @classmethod
    def of(cls, fd: int) -> OutputFile:
        """Return a file that is open already."""
        made = cls.__new__(cls)
        made._fd, made._begun = fd, 0
        return made

    def fileno(self) -> int:
        """Return the number of the open file."""
        return self._fd

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write these bytes from a position on."""
        some: list[Buffer] = []
        size = 0
        for each in _pieces(buffers) if HelperPace.beside_clients else buffers:
            some.append(each)
            size += len(each)
            if len(some) == _MOST_BUFFERS or (HelperPace.beside_clients and size >= _CALL_BYTES):
                self._write(some, size, position)
                position += size
                some, size = [], 0
        if some:
            self._write(some, size, position)

    def _write(self, buffers: list[Buffer], size: int, position: int) -> None:
        end = position + size
        written = os.pwritev(self._fd, buffers, position) if hasattr(os, "pwritev") else 0
        left = size - written
        if left:
            rest = memoryview(b"".join(buffers))[-left:]
            while rest:
                rest = rest[os.pwrite(self._fd, rest, end - len(rest)) :]
        is_early = HelperPace.beside_clients or HelperPace.stores_soon
        if is_early and end - self._begun >= _DISK_BYTES:
            _begin_to_store(self._fd, self._begun, end - self._begun)
            self._begun = end

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _read_at(fd: int, target: memoryview, position: int) -> int:
    """Read once from a position on, into `target` if the system can; return how many bytes."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [target], position)
    content = os.pread(fd, len(target), position)
    target[: len(content)] = content
    return len(content)


def _pieces(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yield the same bytes in buffers that are not too large for one call."""
    for buffer in buffers:
        with memoryview(buffer) as view:
            for start in range(0, len(view), _CALL_BYTES):
                yield view[start : start + _CALL_BYTES]


def _begin_to_store(fd: int, position: int, length: int) -> None:
    """Have the system begin to write a range to disk, and do not wait for it.

    The sync at the end is short then, and does not hold up writes to other files. Linux begins when
    it is told to forget the range. What is not on disk yet stays in memory.
    """
    if sys.platform == "linux":
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_DONTNEED)
