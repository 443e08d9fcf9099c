"""The operating system's files behind the `Files` port.

Syncs are fdatasync on Linux. On macOS fsync leaves the bytes in the disk's own cache, so syncs are
F_FULLFSYNC there. An open file is in `os_file.py`.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Sequence
from errno import EINVAL, ENOTSUP, ENOTTY
from typing import Final

from ottla.ports import Buffer, Entry
from ottla.server.os_file import OsFile, Write

_MODE = 0o644
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
_pwritev: Write = getattr(os, "pwritev", _write_joined)


def file_of(path: str, fd: int) -> OsFile:
    """Return the file of an open descriptor."""
    return OsFile(path, fd, _pwritev, _sync_data)


class OsFiles:
    """The file system of this machine."""

    is_shared = True

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> OsFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if writable or create else os.O_RDONLY)
        return file_of(path, os.open(path, flags | os.O_CREAT if create else flags, _MODE))

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
