"""The operating system's files behind the `Files` port.

A File closes its descriptor when `close` is called or its last reference goes, so that a
file evicted from a pool lives exactly as long as the fetches that still send from it.
Writes are positional and continue where a partial one stopped, at most IOV_MAX buffers a
call. Syncs are fdatasync on Linux. On macOS fsync leaves the bytes in the disk's own cache, so
syncs are F_FULLFSYNC there.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import sys
from collections.abc import Callable, Sequence
from errno import EINVAL, ENOTSUP, ENOTTY
from functools import cache
from typing import Final, cast

from ottla.ports import Buffer, Entry, Mapping

IOV_MAX = 1024
_MODE = 0o644
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_SCARCE = 10  # with less than a tenth of the volume free nothing is allocated ahead
_CANNOT_SYNC: Final = (EINVAL, ENOTSUP, ENOTTY)


def _full_sync(fd: int) -> None:
    """Force a file to the disk's platters (macOS); some file systems there have fsync only."""
    command: int = fcntl.F_FULLFSYNC  # type: ignore[attr-defined]
    try:
        fcntl.fcntl(fd, command)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
        os.fsync(fd)


def _write_joined(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write with one call where there is no pwritev, as before macOS 11."""
    return os.pwrite(fd, b"".join(buffers), position)


_has_full_sync: Final = hasattr(fcntl, "F_FULLFSYNC")
_sync_data: Callable[[int], None] = (
    _full_sync if _has_full_sync else getattr(os, "fdatasync", os.fsync)
)
_sync_directory: Callable[[int], None] = _full_sync if _has_full_sync else os.fsync
_pwritev: Callable[[int, Sequence[Buffer], int], int] = getattr(os, "pwritev", _write_joined)


class OsFile:
    """An open descriptor."""

    __slots__ = ("__weakref__", "_fd", "_path")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd

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
        if len(buffers) > IOV_MAX:
            for first in range(0, len(buffers), IOV_MAX):
                chunk = buffers[first : first + IOV_MAX]
                self.pwritev(chunk, position)
                position += sum(map(len, chunk))
            return
        written = _pwritev(self._fd, buffers, position)
        if written != sum(map(len, buffers)):
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
            while rest:
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
        _sync_data(self._fd)

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


class OsFiles:
    """The file system of this machine."""

    is_shared = True

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> OsFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if writable or create else os.O_RDONLY)
        return OsFile(path, os.open(path, flags | os.O_CREAT if create else flags, _MODE))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False  # any other error is not an answer
        return True

    def list(self, path: str) -> list[Entry]:
        entries = []
        with os.scandir(path) as found:
            for item in found:
                try:
                    entries.append(_entry(item.name, item.stat()))
                except FileNotFoundError:  # removed since the directory was read
                    continue
        return entries

    def stat(self, path: str) -> Entry:
        return _entry(os.path.basename(path), os.stat(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        from shutil import rmtree  # a broker can do without it for a long time

        try:
            rmtree(path)
        except FileNotFoundError:
            pass

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync_directory(fd)
        finally:
            os.close(fd)

    def sync_volume(self, path: str) -> bool:
        """Call syncfs(2), which Python does not have. It reports errors from Linux 5.8 on."""
        if sys.platform != "linux" or _linux_version() < (5, 8):
            return False
        import ctypes  # only a stop with many logs needs it

        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            return False
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if syncfs(fd) != 0:
                errno = ctypes.get_errno()
                raise OSError(errno, os.strerror(errno), path)
        finally:
            os.close(fd)
        return True

    def free_bytes(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def _linux_version() -> tuple[int, int]:
    major, minor, *_ = os.uname().release.replace("-", ".").split(".")
    return int(major), int(minor)


def _entry(name: str, info: os.stat_result) -> Entry:
    return Entry(name, stat.S_ISDIR(info.st_mode), info.st_size, info.st_mtime_ns // 1_000_000)


class DirectoryInUse(OSError):
    """Another process holds the lock of a log directory."""


def lock_directory(directory: str) -> OsFile:
    """Take the directory's `.lock` for this process; held until the file is closed or freed.

    flock also keeps out a second broker in this process. A Java broker takes a POSIX record lock;
    on Linux that is another kind of lock, so it is taken as well. On macOS and the BSDs the two
    exclude each other, and flock alone keeps out both.
    """
    path = os.path.join(directory, ".lock")
    file = OsFiles().open(path, create=True, writable=True)
    exclusive = fcntl.LOCK_EX | fcntl.LOCK_NB
    try:
        fcntl.flock(file.fileno(), exclusive)
        if sys.platform.startswith("linux"):
            fcntl.lockf(file.fileno(), exclusive)
    except (BlockingIOError, PermissionError) as error:
        raise DirectoryInUse(
            error.errno,
            f"{directory} is in use by another process: it holds the lock on {path}",
        ) from error
    return file
