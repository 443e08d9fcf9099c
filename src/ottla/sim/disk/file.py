"""Open files and mappings of a simulated disk."""

from __future__ import annotations

from collections.abc import Sequence
from errno import EINVAL
from typing import TYPE_CHECKING, Final

from ottla.ports import Buffer, Mapping
from ottla.sim.disk.faults import Crash
from ottla.sim.disk.inode import Inode

if TYPE_CHECKING:
    from ottla.sim.disk.disk import SimDisk

_PAGE: Final = 4096


class SimFile:
    """An open file of a SimDisk."""

    __slots__ = ("_disk", "_inode", "_path", "_process", "_writable")

    def __init__(self, disk: SimDisk, path: str, inode: Inode, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._process = disk.process

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        self._check("size")
        return self._inode.live.size

    def pread(self, length: int, position: int) -> bytes:
        self._check("pread")
        return self._inode.live.read(length, position)

    def peek(self, length: int, position: int) -> bytes:
        """Read without an operation of the disk: nothing fails, and no listener is told."""
        return self._inode.live.read(length, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._check("pwritev")
        self._check_writable()
        self._disk.write(self._path, self._inode, b"".join(buffers), position)

    def truncate(self, size: int) -> None:
        self._check("truncate")
        self._check_writable()
        self._disk.truncate(self._path, self._inode, size)

    def allocate(self, position: int, length: int) -> None:
        """Do nothing: whether there is room is decided when a write comes."""

    def sync(self) -> None:
        self.check_process()
        self._disk.sync(self._path, self._inode)

    def map(self, *, writable: bool) -> Mapping:
        self._check("map")
        if self._inode.live.size == 0:
            raise ValueError(f"cannot map the empty file {self._path}")
        return SimMapping(self, self._disk, self._inode, writable)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def check_process(self) -> None:
        """Crash when the process that opened the file is gone."""
        if self._process != self._disk.process:
            raise Crash

    def _check(self, operation: str) -> None:
        self.check_process()
        self._disk.check(operation, self._path)

    def _check_writable(self) -> None:
        if not self._writable:
            raise OSError(EINVAL, "the file is open for reading only", self._path)


class SimMapping:
    """A file's bytes as memory: stores are changes that were not synced, like any other."""

    __slots__ = ("_disk", "_file", "_inode", "_size", "_writable")

    def __init__(self, file: SimFile, disk: SimDisk, inode: Inode, writable: bool) -> None:
        self._file = file
        self._disk = disk
        self._inode = inode
        self._size = inode.live.size
        self._writable = writable

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice, /) -> bytes:
        self._file.check_process()
        start, stop, _ = key.indices(self._size)
        return self._touch(start, stop)

    def __setitem__(self, key: slice, value: bytes, /) -> None:
        self._file.check_process()
        start, stop, _ = key.indices(self._size)
        if not self._writable:
            raise TypeError("the mapping is read-only")
        if stop - start != len(value):
            raise IndexError(f"{len(value)} bytes do not fit into [{start}:{stop}]")
        self._touch(start, stop)
        self._disk.write(self._file.path, self._inode, bytes(value), start)

    def flush(self) -> None:
        self._file.sync()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _touch(self, start: int, stop: int) -> bytes:
        """Read a range; a page past the end of the file would kill a real process (SIGBUS)."""
        page = -(-self._inode.live.size // _PAGE) * _PAGE
        if start < stop and stop > page:
            raise AssertionError(f"{self._file.path}: [{start}:{stop}] touched past its end")
        found = self._inode.live.read(stop - start, start)
        return found + bytes(stop - start - len(found))
