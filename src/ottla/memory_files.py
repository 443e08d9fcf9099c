"""A file system in memory, for brokers that store nothing on disk and for tests.

Files are sparse: bytes beyond what was written read as zeros and take no memory, so a
preallocated index needs none. An unlinked or renamed file can still be used through its open
handles, as on POSIX. Modification times come from the given clock, because this code must not
read the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EINVAL, EISDIR, ENOTEMPTY

from ottla.ports import Buffer, Entry, Mapping

_TOTAL_BYTES = 1 << 40


class _Node:
    """The content and modification time of a file."""

    __slots__ = ("data", "mtime_ms", "size")

    def __init__(self, mtime_ms: int) -> None:
        self.data = bytearray()
        self.size = 0
        self.mtime_ms = mtime_ms

    def read(self, length: int, position: int) -> bytes:
        end = min(position + length, self.size)
        if end <= position:
            return b""
        with memoryview(self.data) as view:  # a slice of the bytearray would be copied twice
            content = bytes(view[position:end])
        missing = end - position - len(content)
        return content + bytes(missing) if missing else content

    def write(self, content: Buffer, position: int) -> None:
        data = self.data
        if position > len(data):
            data.extend(bytes(position - len(data)))
        end = position + len(content)
        if position == len(data):
            data += content
        else:
            data[position:end] = content
        self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.size = size


class MemoryMapping:
    """The bytes of a file as memory of fixed size. Writes change the file at once."""

    __slots__ = ("_node", "_size", "_writable")

    def __init__(self, node: _Node, writable: bool) -> None:
        self._node = node
        self._size = node.size
        self._writable = writable

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice, /) -> bytes:
        start, stop, _ = key.indices(self._size)
        return self._node.read(stop - start, start)

    def __setitem__(self, key: slice, value: bytes, /) -> None:
        start, stop, _ = key.indices(self._size)
        if not self._writable:
            raise TypeError("the mapping is read-only")
        if stop - start != len(value):
            raise IndexError(f"{len(value)} bytes do not fit into [{start}:{stop}]")
        self._node.write(value, start)

    def flush(self) -> None:
        """Do nothing: the mapping is the file."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class MemoryFile:
    """An open file of a MemoryFiles."""

    __slots__ = ("_clock_ms", "_node", "_path", "_writable")

    def __init__(self, path: str, node: _Node, writable: bool, clock_ms: Callable[[], int]) -> None:
        self._path = path
        self._node = node
        self._writable = writable
        self._clock_ms = clock_ms

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return self._node.size

    def pread(self, length: int, position: int) -> bytes:
        return self._node.read(length, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._check_writable()
        node = self._node
        for content in buffers:
            node.write(content, position)
            position += len(content)
        node.mtime_ms = self._clock_ms()

    def truncate(self, size: int) -> None:
        self._check_writable()
        self._node.truncate(size)

    def allocate(self, position: int, length: int) -> None:
        """Do nothing: there is no disk."""
        self._node.mtime_ms = self._clock_ms()

    def sync(self) -> None:
        """Do nothing: there is no disk."""

    def map(self, *, writable: bool) -> Mapping:
        if self._node.size == 0:
            raise ValueError(f"cannot map the empty file {self._path}")
        return MemoryMapping(self._node, writable)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _check_writable(self) -> None:
        if not self._writable:
            raise OSError(EINVAL, "the file is open for reading only", self._path)


class MemoryFiles:
    """A tree of directories and files. Paths are compared as given, without `.` and `..`."""

    is_shared = False

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self._clock_ms = clock_ms
        self._files: dict[str, _Node] = {}
        self._dirs: dict[str, set[str]] = {"": set()}

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> MemoryFile:
        node = self._files.get(path)
        if node is None:
            if path in self._dirs:
                raise IsADirectoryError(EISDIR, "is a directory", path)
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            node = _Node(self._clock_ms())
            self._add(path, node)
        return MemoryFile(path, node, writable or create, self._clock_ms)

    def exists(self, path: str) -> bool:
        return path in self._files or path.rstrip("/") in self._dirs

    def list(self, path: str) -> list[Entry]:
        names = self._dirs.get(path.rstrip("/"))
        if names is None:
            raise FileNotFoundError(2, "no such directory", path)
        return [self.stat(f"{path.rstrip('/')}/{name}" if path else name) for name in sorted(names)]

    def stat(self, path: str) -> Entry:
        name = path.rpartition("/")[2]
        node = self._files.get(path)
        if node is not None:
            return Entry(name, False, node.size, node.mtime_ms)
        if path in self._dirs:
            return Entry(name, True, 0, 0)
        raise FileNotFoundError(2, "no such file", path)

    def make_dirs(self, path: str) -> None:
        path = path.rstrip("/")
        if path in self._dirs:
            return
        if path in self._files:
            raise FileExistsError(17, "is a file", path)
        parent, _, name = path.rpartition("/")
        self.make_dirs(parent)
        self._dirs[parent].add(name)
        self._dirs[path] = set()

    def rename(self, source: str, target: str) -> None:
        if source in self._dirs:
            self._rename_dir(source, target)
            return
        node = self._files.get(source)
        if node is None:
            raise FileNotFoundError(2, "no such file", source)
        self._add(target, node)
        if source != target:
            self._remove(source)

    def unlink(self, path: str) -> None:
        if path in self._files:
            self._remove(path)

    def remove_tree(self, path: str) -> None:
        if path not in self._dirs:
            return
        for name in list(self._dirs[path]):
            child = f"{path}/{name}"
            if child in self._dirs:
                self.remove_tree(child)
            else:
                del self._files[child]
        del self._dirs[path]
        parent, _, name = path.rpartition("/")
        self._dirs[parent].discard(name)

    def sync_dir(self, path: str) -> None:
        if path not in self._dirs:
            raise FileNotFoundError(2, "no such directory", path)

    def sync_volume(self, path: str) -> bool:
        return True

    def free_bytes(self, path: str) -> tuple[int, int]:
        used = sum(len(node.data) for node in self._files.values())
        return _TOTAL_BYTES, _TOTAL_BYTES - used

    def _add(self, path: str, node: _Node) -> None:
        parent, _, name = path.rpartition("/")
        names = self._dirs.get(parent)
        if names is None:
            raise FileNotFoundError(2, "no such directory", parent)
        names.add(name)
        self._files[path] = node

    def _remove(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        self._dirs[parent].discard(name)
        del self._files[path]

    def _rename_dir(self, source: str, target: str) -> None:
        if self._dirs.get(target):
            raise OSError(ENOTEMPTY, "directory not empty", target)
        parent, _, name = target.rpartition("/")
        if parent not in self._dirs:
            raise FileNotFoundError(2, "no such directory", parent)
        self._move_dir(source, target)
        old_parent, _, old_name = source.rpartition("/")
        self._dirs[old_parent].discard(old_name)
        self._dirs[parent].add(name)

    def _move_dir(self, source: str, target: str) -> None:
        """Move a directory and all in it, at the cost of what is in it."""
        names = self._dirs[target] = self._dirs.pop(source)
        for name in names:
            old, new = f"{source}/{name}", f"{target}/{name}"
            if old in self._dirs:
                self._move_dir(old, new)
            else:
                self._files[new] = self._files.pop(old)
