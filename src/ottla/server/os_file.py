"""One open file of the operating system: every write of a log goes through it.

It closes its descriptor when `close` is called or its last reference goes, so that a file evicted
from a pool lives exactly as long as the fetches that still send from it. Writes are positional
and continue where a partial one stopped, at most IOV_MAX buffers a call.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, TypeAlias, cast

from ottla.ports import Buffer, Mapping

IOV_MAX: Final = 1024
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE
_SCARCE: Final = 10  # with less than a tenth of the volume free nothing is allocated ahead

Write: TypeAlias = Callable[[int, Sequence[Buffer], int], int]
"""Writes buffers at a position, with one system call; returns how many bytes it wrote."""


class OsFile:
    """An open descriptor. `write` and `sync` are the calls that this system has for it."""

    __slots__ = ("_fd", "_path", "_sync", "_write")

    def __init__(self, path: str, fd: int, write: Write, sync: Callable[[int], None]) -> None:
        self._path = path
        self._fd = fd
        self._write = write
        self._sync = sync

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        content = os.pread(self._fd, length, position)
        if len(content) < length and content:
            return self._pread_rest(content, length, position)
        return content

    def _pread_rest(self, content: bytes, length: int, position: int) -> bytes:
        while len(content) < length:
            more = os.pread(self._fd, length - len(content), position + len(content))
            if not more:
                break
            content += more
        return content

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        count = len(buffers)
        if count > IOV_MAX:
            for first in range(0, count, IOV_MAX):
                chunk = buffers[first : first + IOV_MAX]
                self.pwritev(chunk, position)
                position += sum(map(len, chunk))
            return
        write = self._write
        written = write(self._fd, buffers, position)
        size = len(buffers[0]) if count == 1 else sum(map(len, buffers))
        if written != size:
            self._write_rest(buffers, written, position + written)

    def _write_rest(self, buffers: Sequence[Buffer], written: int, position: int) -> None:
        """Go on after a partial write; the error that stopped it shows at the next attempt."""
        for content in buffers:
            size = len(content)
            if written >= size:
                written -= size
                continue
            rest = memoryview(content)[written:]
            written = 0
            while len(rest):
                count = os.pwrite(self._fd, rest, position)
                position += count
                rest = rest[count:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, position: int, length: int) -> None:
        volume = os.fstatvfs(self._fd)
        if volume.f_bavail * _SCARCE < volume.f_blocks:
            return  # others may need the room at once
        fallocate = _fallocate()
        if fallocate is not None:
            fallocate(self._fd, _KEEP_SIZE, position, length)

    def sync(self) -> None:
        sync = self._sync
        sync(self._fd)

    def map(self, *, writable: bool) -> Mapping:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return mmap.mmap(self._fd, 0, access=access)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return the system call, which Python has only in a form that changes the file's size."""
    import ctypes  # not before the first large file: it takes time and memory

    try:
        function = ctypes.CDLL(None).fallocate64
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return cast(Callable[[int, int, int, int], int], function)
