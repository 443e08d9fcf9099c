"""A bounded number of open files and index maps, however many segments there are.

A handle is opened when it is needed. When there are too many, the least recently used one is
dropped. A dropped handle closes with its last reference: a fetch that still sends from it
keeps it open until then. So the number of descriptors is at most the limit plus the fetches in
flight, and nobody may keep a handle longer than one call, except in a FileSlice.

An mmap keeps a descriptor of its own, so maps count like files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from errno import EMFILE, ENFILE
from typing import Protocol, TypeVar

from ottla.ports import File, Files, Mapping

T = TypeVar("T")

DEFAULT_LIMIT = 512


class FileOwner(Protocol):
    """An object with one file, which it opens for the pool."""

    def open_file(self, files: Files) -> File: ...


class MapOwner(Protocol):
    """An object with one mapped file, which it maps for the pool."""

    def open_map(self, files: Files) -> Mapping: ...


class FilePool:
    """The open handles of all logs of a broker."""

    __slots__ = ("_last_used", "_max_files", "_max_maps", "_open_files", "_open_maps", "files")

    def __init__(self, files: Files, limit: int = DEFAULT_LIMIT) -> None:
        self.files = files
        self._open_files: OrderedDict[FileOwner, File] = OrderedDict()
        self._open_maps: OrderedDict[MapOwner, Mapping] = OrderedDict()
        self._last_used: FileOwner | None = None
        """The owner that asked last. If its file is open, it is the last one in `_open_files`."""
        self._max_maps = max(limit // 4, 1)
        self._max_files = max(limit - self._max_maps, 1)

    def __len__(self) -> int:
        """Return how many handles the pool itself keeps open."""
        return len(self._open_files) + len(self._open_maps)

    def file(self, owner: FileOwner) -> File:
        """Return the owner's file, opened if it is not open."""
        file = self._open_files.get(owner)
        if file is not None:
            if owner is not self._last_used:
                self._open_files.move_to_end(owner)
                self._last_used = owner
            return file
        file = self._open(owner.open_file)
        self._open_files[owner] = file
        self._last_used = owner
        if len(self._open_files) > self._max_files:
            self._open_files.popitem(last=False)
        return file

    def map(self, owner: MapOwner) -> Mapping:
        """Return the owner's map, mapped if it is not."""
        mapping = self._open_maps.get(owner)
        if mapping is not None:
            self._open_maps.move_to_end(owner)
            return mapping
        mapping = self._open(owner.open_map)
        self._open_maps[owner] = mapping
        if len(self._open_maps) > self._max_maps:
            self._open_maps.popitem(last=False)
        return mapping

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> File:
        """Open a file for one call; the pool does not keep it."""
        return self._open(lambda files: files.open(path, create=create, writable=writable))

    def discard_file(self, owner: FileOwner) -> None:
        """Forget the owner's file, because it is renamed, removed or opened in another mode."""
        self._open_files.pop(owner, None)

    def discard_map(self, owner: MapOwner) -> None:
        """Unmap before the file changes size: touching a page past its end kills the process."""
        mapping = self._open_maps.pop(owner, None)
        if mapping is not None:
            mapping.close()

    def close(self) -> None:
        """Drop every handle."""
        self._open_files.clear()
        self._open_maps.clear()

    def _open(self, opener: Callable[[Files], T]) -> T:
        try:
            return opener(self.files)
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE) or not len(self):
                raise
        # Others in the process use descriptors too: close half of ours and try once more.
        for _ in range((len(self._open_files) + 1) // 2):
            self._open_files.popitem(last=False)
        for _ in range((len(self._open_maps) + 1) // 2):
            self._open_maps.popitem(last=False)
        return opener(self.files)
