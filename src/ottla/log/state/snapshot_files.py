"""The producer snapshots of one log: a `.snapshot` file for each offset one was taken at.

One is written when a segment is rolled, at its base offset, and one when the log is closed. A
snapshot of many producers is encoded and written in the background, a few thousand producers
at a time. It gets its name on the loop, once it is whole: until then the log has one snapshot
less, and a start after a crash reads more batches instead.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice

from ottla.log.file_names import SNAPSHOT, TEMPORARY, offset_name
from ottla.log.file_pool import FilePool
from ottla.log.state.producer_snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_entries,
    encode_snapshot,
    finish_snapshot,
)
from ottla.log.state.producer_table import ProducerEntry, ProducerTable
from ottla.ports import Background, read_file

PRODUCERS_AT_A_TIME = 2000
"""How many producers are encoded at a time: a millisecond or two."""

MOST_BYTES = 1024 * 1024 * 1024
"""A larger file is not taken for a snapshot: it would have 23 million producers."""


class _WriteJob:
    """A snapshot that is being encoded and written."""

    __slots__ = ("_entries", "_parts", "offset", "path")

    def __init__(self, offset: int, path: str, entries: ProducerTable) -> None:
        self._entries: Iterator[tuple[int, ProducerEntry]] = iter(entries.items())
        self._parts: list[bytes] = []
        self.offset = offset
        self.path = path

    def encode_some(self) -> bool:
        """Encode the next producers, off the loop; return False if there are none left."""
        part = encode_entries(islice(self._entries, PRODUCERS_AT_A_TIME))
        self._parts.append(part)
        return bool(part)

    def write(self, pool: FilePool) -> None:
        """Write the file under its temporary name; off the loop."""
        file = pool.files.open(self.path + TEMPORARY, create=True, writable=True)
        file.truncate(0)
        file.pwritev([finish_snapshot(self._parts)], 0)
        file.close()


class SnapshotFiles:
    """The offsets of the snapshots on disk, in rising order."""

    __slots__ = ("_directory", "_job", "_pool", "offsets")

    def __init__(self, pool: FilePool, directory: str) -> None:
        self._pool = pool
        self._directory = directory
        self._job: _WriteJob | None = None
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
        if file.size():
            file.truncate(0)
        file.pwritev([encode_snapshot(entries)], 0)
        self.offsets.append(offset)
        return path

    def start_write(
        self,
        offset: int,
        entries: ProducerTable,
        background: Background,
        done: Callable[[str | OSError], None],
    ) -> None:
        """Write a snapshot of many producers in the background; `done` gets its path.

        One is written at a time: while one is under way, another is not begun. `done` is not
        called if the snapshot is not wanted any more.
        """
        if self._job is not None or (self.offsets and self.offsets[-1] == offset):
            return
        job = self._job = _WriteJob(offset, self.path(offset), entries.copy())

        def encoded(has_more: bool | OSError) -> None:
            if job is not self._job:
                return
            if has_more:
                background.submit(job.encode_some, encoded)
            else:
                background.submit(lambda: job.write(self._pool), written)

        def written(result: OSError | None) -> None:
            if job is not self._job:
                self._pool.files.unlink(job.path + TEMPORARY)
                return
            self._job = None
            try:
                if result is not None:
                    raise result
                self._pool.files.rename(job.path + TEMPORARY, job.path)
            except OSError as error:
                done(error)
                return
            insort(self.offsets, job.offset)
            done(job.path)

        background.submit(job.encode_some, encoded)

    def cancel(self) -> None:
        """Give up the snapshot that is being written, if there is one."""
        self._job = None

    def read(self, offset: int) -> ProducerTable:
        """Return the producers of a snapshot; raise CorruptSnapshot."""
        try:
            content = read_file(self._pool.files, self.path(offset), MOST_BYTES)
        except ValueError as error:
            raise CorruptSnapshot(str(error)) from None
        return decode_snapshot(content)

    def forget(self, offset: int) -> bool:
        """Forget a snapshot whose file the caller removes; return True if there is one."""
        if self._job is not None and self._job.offset == offset:
            self.cancel()
        if offset not in self.offsets:
            return False
        self.offsets.remove(offset)
        return True

    def remove_from(self, offset: int) -> None:
        """Remove the snapshots at or after an offset for good: other batches may come there."""
        if self._job is not None and self._job.offset >= offset:
            self.cancel()
        removed = [found for found in self.offsets if found >= offset]
        for found in removed:
            self._remove(found)
        if removed:
            self._pool.files.sync_dir(self._directory)

    def newest_upto(self, limit: int | None) -> int | None:
        """Return the offset of the newest snapshot, or of the newest up to an offset, if any."""
        slot = len(self.offsets) if limit is None else bisect_right(self.offsets, limit)
        return self.offsets[slot - 1] if slot else None

    def remove(self, offset: int) -> None:
        """Remove a snapshot for good."""
        self._remove(offset)
        self._pool.files.sync_dir(self._directory)

    def remove_strays(self, base_offsets: Collection[int]) -> None:
        """Keep the snapshots at the beginning of segments, and the newest of all."""
        for offset in self.offsets[:-1]:
            if offset not in base_offsets:
                self._remove(offset)

    def _remove(self, offset: int) -> None:
        self.offsets.remove(offset)
        self._pool.files.unlink(self.path(offset))
