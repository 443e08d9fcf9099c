"""A disk with planted faults: full, broken, or refusing to sync, as the test says.

`FaultyFiles` wraps other files, often a `MemoryFiles`. It also records what was opened, written,
read and synced, for tests that count disk accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from errno import EIO, ENOSPC
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from ottla.ports import Buffer, Entry, File, Files, Mapping

Operation: TypeAlias = Literal[
    "open", "create", "write", "truncate", "sync", "sync_dir", "sync_volume", "list"
]
"""What can fail. `create` is an `open` of a file that does not exist yet."""


@dataclass
class _Fault:
    operation: Operation
    planted: OSError
    path: str
    room: int
    after: int
    times: int | None

    def strikes(self, operation: Operation, path: str, size: int) -> bool:
        """Return whether this call fails, and count it."""
        if operation != self.operation or self.times == 0:
            return False
        if size <= self.room or not fnmatchcase(path, self.path):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True

    def error(self, path: str) -> OSError:
        return OSError(self.planted.errno, self.planted.strerror, path)


class FaultyFile:
    """An open file of a FaultyFiles."""

    def __init__(self, files: FaultyFiles, file: File) -> None:
        self._files = files
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return self._file.size()

    def pread(self, length: int, position: int) -> bytes:
        content = self._file.pread(length, position)
        self._files.bytes_read += len(content)
        return content

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._files.writes.append((self.path, len(buffers)))
        size = sum(len(buffer) for buffer in buffers)
        fault = self._files._fault("write", self.path, size)
        if fault is None:
            self._file.pwritev(buffers, position)
            return
        content = b"".join(bytes(buffer) for buffer in buffers)
        self._file.pwritev([content[: fault.room]], position)
        raise fault.error(self.path)

    def truncate(self, size: int) -> None:
        self._files._check("truncate", self.path)
        self._file.truncate(size)

    def allocate(self, position: int, length: int) -> None:
        self._file.allocate(position, length)

    def sync(self) -> None:
        self._files._check("sync", self.path)
        self._files.synced.append(self.path)
        self._file.sync()

    def map(self, *, writable: bool) -> Mapping:
        return self._file.map(writable=writable)

    def close(self) -> None:
        self._file.close()


class FaultyFiles:
    """Passes everything on to `inner`, except the operations that `fail` has named."""

    is_shared = False

    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self._faults: list[_Fault] = []
        self.opened: list[str] = []
        self.synced: list[str] = []
        self.can_sync_volume = True
        """The paths of the files and directories that were synced, in order."""
        self.writes: list[tuple[str, int]] = []
        """The path and the number of buffers of every write, also of failed ones."""
        self.bytes_read = 0

    def fail(
        self,
        operation: Operation,
        error: OSError | None = None,
        *,
        path: str = "*",
        room: int = 0,
        after: int = 0,
        times: int | None = None,
    ) -> None:
        """Make an operation on paths that match the pattern fail until `heal`, by default with EIO.

        `after` calls succeed first, and only `times` calls fail. A write fails if it has more
        than `room` bytes; the first `room` bytes are written.
        """
        planted = OSError(EIO, f"{operation} failed on purpose") if error is None else error
        self._faults.append(_Fault(operation, planted, path, room, after, times))

    def fill(self, path: str = "*", *, room: int = 0) -> None:
        """Make writes of more than `room` bytes fail as on a full disk, after `room` bytes."""
        self.fail("write", OSError(ENOSPC, "no room on purpose"), path=path, room=room)

    def heal(self) -> None:
        """Let all operations succeed again."""
        self._faults.clear()

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> File:
        self.opened.append(path)
        self._check("open", path)
        if create and self._faults and not self.inner.exists(path):
            self._check("create", path)
        return FaultyFile(self, self.inner.open(path, create=create, writable=writable))

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def list(self, path: str) -> list[Entry]:
        self._check("list", path)
        return self.inner.list(path)

    def stat(self, path: str) -> Entry:
        return self.inner.stat(path)

    def make_dirs(self, path: str) -> None:
        self.inner.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    def unlink(self, path: str) -> None:
        self.inner.unlink(path)

    def remove_tree(self, path: str) -> None:
        self.inner.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self._check("sync_dir", path)
        self.synced.append(path)
        self.inner.sync_dir(path)

    def sync_volume(self, path: str) -> bool:
        self._check("sync_volume", path)
        self.synced.append(path)
        return self.can_sync_volume and self.inner.sync_volume(path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        return self.inner.free_bytes(path)

    def _fault(self, operation: Operation, path: str, size: int) -> _Fault | None:
        return next((f for f in self._faults if f.strikes(operation, path, size)), None)

    def _check(self, operation: Operation, path: str) -> None:
        fault = self._fault(operation, path, 1)
        if fault is not None:
            raise fault.error(path)
