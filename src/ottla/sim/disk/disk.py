"""A disk in memory behind the Files port: it forgets what was not synced, fills up and fails.

Every operation may fail (`DiskFaults`), and every operation that changes something may be
the last one of the process. A write that is, or that meets a full disk, leaves a part of its
bytes behind. After a crash all operations of the dead process raise Crash as well, so that
nothing that unwinds can change the disk; handles of an earlier process stay dead for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from errno import EISDIR, ENOTDIR, ENOTEMPTY
from random import Random as Generator
from typing import Final

from ottla.ports import Clock, Entry
from ottla.sim.disk.directory import Child, Directory
from ottla.sim.disk.faults import UNLIMITED, Crash, DiskFaults, no_room
from ottla.sim.disk.file import SimFile
from ottla.sim.disk.inode import Change, Inode

_TOTAL_BYTES: Final = UNLIMITED


class SimDisk:
    """The file system of one simulated machine; it outlives the broker's processes."""

    is_shared = False

    def __init__(self, clock: Clock, chance: Generator, faults: DiskFaults) -> None:
        self._clock = clock
        self._chance = chance
        self._root = Directory()
        self._changes = 0
        self._is_dead = False
        self.faults = faults
        self.process = 0
        """Counts the processes that used the disk."""
        self.on_operation: Callable[[str, str], None] = _nothing
        """Called before every operation."""

    # -- the life of processes -----------------------------------------------------------

    def kill(self) -> None:
        """End the process: what it wrote stays, in the page cache or on disk."""
        self._is_dead = True

    def lose_unsynced(self) -> None:
        """End the process and lose all that was not synced: the worst a power failure can do."""
        self._is_dead = True
        for directory in list(self._root.below()):
            directory.revert()
        for inode in _inodes(self._root):
            inode.lose_unsynced()

    def lose_power(self) -> None:
        """End the process and lose what was not synced, or a part of it, by chance."""
        self._is_dead = True
        directories = list(self._root.below())
        one_journal = self._chance.random() < 0.5
        cut = self._chance.randint(0, self._changes)
        for directory in directories:
            number = cut if one_journal else self._chance.randint(0, self._changes)
            directory.keep_up_to(number)
            directory.revert()
        for inode in _inodes(self._root):
            inode.lose_power(self._chance)

    def restart(self) -> None:
        """Let a new process use the disk."""
        self._is_dead = False
        self.process += 1

    def wipe(self) -> None:
        """Begin with nothing, as a new disk."""
        self._root = Directory()
        self._is_dead = False

    def has(self, path: str) -> bool:
        """Return whether a path is there. This never fails and counts as no operation."""
        return self._find(path) is not None

    def peek(self, path: str) -> bytes | None:
        """Return what a file holds, None if there is none. This counts as no operation."""
        found = self._find(path)
        return found.live.read(len(found.live.data), 0) if isinstance(found, Inode) else None

    def has_forgotten(self, path: str) -> bool:
        """Return whether a file below a path has visible bytes that no sync will write."""
        found = self._find(path)
        if isinstance(found, Inode):
            return found.is_forgotten()
        return found is not None and any(inode.is_forgotten() for inode in _inodes(found))

    # -- the Files port ------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> SimFile:
        self.check("open", path)
        directory, name = self._parent(path)
        child = directory.live.get(name)
        if isinstance(child, Directory):
            raise IsADirectoryError(EISDIR, "is a directory", path)
        if child is None:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            child = Inode(self._clock.wall_ms())
            self._change_names("create", path, directory, (name, child))
        return SimFile(self, path, child, writable or create)

    def exists(self, path: str) -> bool:
        self.check("exists", path)
        return self._find(path) is not None

    def list(self, path: str) -> list[Entry]:
        self.check("list", path)
        directory = self._directory(path)
        return [_entry(name, child) for name, child in sorted(directory.live.items())]

    def stat(self, path: str) -> Entry:
        self.check("stat", path)
        child = self._find(path)
        if child is None:
            raise FileNotFoundError(2, "no such file", path)
        return _entry(path.rpartition("/")[2], child)

    def make_dirs(self, path: str) -> None:
        self.check("make_dirs", path)
        directory, done = self._root, ""
        for name in _names(path):
            done = f"{done}/{name}"
            child = directory.live.get(name)
            if isinstance(child, Inode):
                raise FileExistsError(17, "is a file", path)
            if child is None:
                child = Directory()
                self._change_names("make_dir", done, directory, (name, child))
            directory = child

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        directory, name = self._parent(source)
        target_directory, target_name = self._parent(target)
        assert directory is target_directory, "only renames within a directory are simulated"
        child = directory.live.get(name)
        if child is None:
            raise FileNotFoundError(2, "no such file", source)
        replaced = directory.live.get(target_name)
        if isinstance(replaced, Directory) and replaced.live:
            raise OSError(ENOTEMPTY, "directory not empty", target)
        if name == target_name:
            return
        if isinstance(replaced, Inode):
            self.faults.give_room(target, len(replaced.live.data))
        self._change_names("rename", source, directory, (name, None), (target_name, child))

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        try:
            directory, name = self._parent(path)
        except FileNotFoundError:
            return
        child = directory.live.get(name)
        if isinstance(child, Directory):
            raise IsADirectoryError(EISDIR, "is a directory", path)
        if child is not None:
            self._change_names("unlink", path, directory, (name, None))
            self.faults.give_room(path, len(child.live.data))

    def remove_tree(self, path: str) -> None:
        self.check("remove_tree", path)
        found = self._find(path)
        if found is None:
            return
        if isinstance(found, Inode):
            raise NotADirectoryError(ENOTDIR, "is a file", path)
        for name, child in sorted(found.live.items()):
            if isinstance(child, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        directory, name = self._parent(path)
        self._change_names("remove_dir", path, directory, (name, None))

    def sync_dir(self, path: str) -> None:
        self.check("sync_dir", path)
        directory = self._directory(path)
        is_last = self.faults.crashes_now()
        if is_last and self._chance.random() < 0.5:
            raise self.crash()
        directory.sync()
        if is_last:
            raise self.crash()

    def sync_volume(self, path: str) -> bool:
        """Return False: whoever stops has to sync file by file, where more can go wrong."""
        return False

    def free_bytes(self, path: str) -> tuple[int, int]:
        self.check("free_bytes", path)
        volume = self.faults.volume_of(path)
        return _TOTAL_BYTES, _TOTAL_BYTES if volume is None else volume.free_bytes

    # -- for files and mappings ----------------------------------------------------------

    def check(self, operation: str, path: str) -> None:
        """Begin an operation: Crash in a dead process, OSError where the disk fails."""
        if self._is_dead:
            raise Crash
        self.on_operation(operation, path)
        if self._is_dead:
            raise Crash
        self.faults.fail_some(path)

    def crash(self) -> Crash:
        """End the process here; raise what this returns."""
        self._is_dead = True
        return Crash()

    def write(self, path: str, inode: Inode, content: bytes, position: int) -> None:
        """Write all of it, or what fits on a full disk, or what a crash leaves."""
        if self.faults.crashes_now():
            torn = content[: self._chance.randint(0, len(content))]
            inode.change(Change(position, torn), self._clock.wall_ms())
            raise self.crash()
        growth = max(position + len(content) - max(len(inode.live.data), position), 0)
        room = self.faults.take_room(path, growth)
        fitting = content if room == growth else content[: len(content) - growth + room]
        if fitting:
            inode.change(Change(position, fitting), self._clock.wall_ms())
        if room < growth:
            raise no_room(path)

    def truncate(self, path: str, inode: Inode, size: int) -> None:
        """Cut or extend."""
        is_last = self.faults.crashes_now()
        if is_last and self._chance.random() < 0.5:
            raise self.crash()
        self.faults.give_room(path, max(len(inode.live.data) - size, 0))
        inode.change(Change(size, None), self._clock.wall_ms())
        if is_last:
            raise self.crash()

    def sync(self, path: str, inode: Inode) -> None:
        """Make a file's content durable."""
        try:
            self.check("sync", path)
        except OSError:
            inode.fail_sync()
            raise
        is_last = self.faults.crashes_now()
        if is_last and self._chance.random() < 0.5:
            raise self.crash()
        inode.sync()
        if is_last:
            raise self.crash()

    # -- names ---------------------------------------------------------------------------

    def _change_names(
        self, operation: str, path: str, directory: Directory, *names: tuple[str, Child | None]
    ) -> None:
        is_last = self.faults.crashes_now()
        if is_last and self._chance.random() < 0.5:
            raise self.crash()
        volume = self.faults.volume_of(path)
        if operation in ("create", "make_dir") and volume is not None and volume.free_bytes <= 0:
            raise no_room(path)
        self._changes += 1
        directory.change(self._changes, *names)
        if is_last:
            raise self.crash()

    def _find(self, path: str) -> Child | None:
        child: Child = self._root
        for name in _names(path):
            if isinstance(child, Inode):
                return None
            found = child.live.get(name)
            if found is None:
                return None
            child = found
        return child

    def _directory(self, path: str) -> Directory:
        found = self._find(path)
        if not isinstance(found, Directory):
            raise FileNotFoundError(2, "no such directory", path)
        return found

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def _inodes(directory: Directory) -> Iterator[Inode]:
    """Return all files below a directory, always in the same order."""
    for _, child in sorted(directory.live.items()):
        if isinstance(child, Directory):
            yield from _inodes(child)
        else:
            yield child


def _entry(name: str, child: Child) -> Entry:
    if isinstance(child, Directory):
        return Entry(name, True, 0, 0)
    return Entry(name, False, child.live.size, child.mtime_ms)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _nothing(operation: str, path: str) -> None:
    """Do nothing: nobody listens."""
