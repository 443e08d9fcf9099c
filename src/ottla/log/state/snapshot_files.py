"""The producer snapshots of one log: a `.snapshot` file for each offset one was taken at.

One is written when a segment is rolled, at its base offset, and one when the log is closed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.log.file_names import SNAPSHOT, offset_name
from ottla.log.file_pool import FilePool
from ottla.log.state.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.log.state.producer_states import ProducerEntry
from ottla.ports import read_file


class SnapshotFiles:
    """The offsets of the snapshots on disk, in rising order."""

    __slots__ = ("_directory", "_pool", "offsets")

    def __init__(self, pool: FilePool, directory: str) -> None:
        self._pool = pool
        self._directory = directory
        self.offsets: list[int] = []

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at an offset."""
        return f"{self._directory}/{offset_name(offset, SNAPSHOT)}"

    def add(self, offset: int) -> None:
        """Add a snapshot that was found on disk, after the others."""
        self.offsets.append(offset)

    def write(self, offset: int, entries: Mapping[int, ProducerEntry]) -> str | None:
        """Write a snapshot without forcing it to disk; return its path, None if it exists."""
        if self.offsets and self.offsets[-1] == offset:
            return None
        path = self.path(offset)
        file = self._pool.open(path, create=True, writable=True)
        file.truncate(0)
        file.pwritev([encode_snapshot(entries)], 0)
        self.offsets.append(offset)
        return path

    def read(self, offset: int) -> dict[int, ProducerEntry]:
        """Return the producers of a snapshot; raises CorruptSnapshot."""
        return decode_snapshot(read_file(self._pool.files, self.path(offset)))

    def forget(self, offset: int) -> bool:
        """Forget a snapshot whose file the caller removes; return True if there is one."""
        if offset not in self.offsets:
            return False
        self.offsets.remove(offset)
        return True

    def remove_from(self, offset: int) -> None:
        """Remove the snapshots at or after an offset for good: other batches may come there."""
        removed = [found for found in self.offsets if found >= offset]
        for found in removed:
            self._remove(found)
        if removed:
            self._pool.files.sync_dir(self._directory)

    def remove_strays(self, base_offsets: Collection[int]) -> None:
        """Keep the snapshots at the beginning of segments, and the newest of all."""
        for offset in self.offsets[:-1]:
            if offset not in base_offsets:
                self._remove(offset)

    def _remove(self, offset: int) -> None:
        self.offsets.remove(offset)
        self._pool.files.unlink(self.path(offset))
