"""A segment: a file of batches from a base offset on, with its indexes.

`size` and the largest timestamp are those of the written batches. A failed write may leave
bytes beyond `size`: they do not count. A rolled segment keeps no file open: the pool opens
what is read. Its indexes are opened only when they are needed, and rebuilt if they are damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.log.damage import CorruptIndex, DamagedLog
from ottla.log.file_names import INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_name
from ottla.log.file_pool import FilePool
from ottla.log.segment.batch_scan import written_batches
from ottla.log.segment.index_file import UNKNOWN
from ottla.log.segment.index_rebuild import IndexBuilder, IndexRebuild, read_indexes
from ottla.log.segment.offset_index import OffsetIndex
from ottla.log.segment.time_index import TimeIndex
from ottla.log.segment.txn_index import AbortedTxn, TxnIndex
from ottla.model.ids import NO_TIMESTAMP
from ottla.ports import File, Files
from ottla.records.batch import Batch

ALLOCATE_FROM_BYTES = 8 * 1024 * 1024
"""From this size on, disk space is allocated ahead of the writes."""
MOST_AHEAD_BYTES = 16 * 1024 * 1024
UNKNOWN_TIMESTAMP = -2
"""The largest timestamp of a segment whose time index was not read yet."""


class Segment:
    """One segment of a log."""

    __slots__ = (
        "_max_timestamp",
        "_offset_index",
        "_time_index",
        "_txn_index",
        "allocated_end",
        "base_offset",
        "directory",
        "has_aborted",
        "is_active",
        "is_loose",
        "max_timestamp_offset",
        "pool",
        "size",
    )

    def __init__(self, pool: FilePool, directory: str, base_offset: int, size: int) -> None:
        self.pool = pool
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.is_active = False
        self.is_loose = False
        """True if the file may have bytes beyond `size`."""
        self.allocated_end = 0
        """Up to where disk space was allocated ahead of the writes."""
        self._max_timestamp = UNKNOWN_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self.has_aborted = True
        """False if no transaction was aborted in this segment: it has no transaction index."""

    def __repr__(self) -> str:
        return f"Segment(base_offset={self.base_offset}, size={self.size})"

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    def open_file(self, files: Files) -> File:
        """Open the file for the pool, writable while the segment is the active one."""
        return files.open(self.path(LOG), writable=self.is_active)

    @property
    def file(self) -> File:
        return self.pool.file(self)

    @property
    def offset_index(self) -> OffsetIndex:
        self.open_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        self.open_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def txn_index(self) -> TxnIndex:
        """The aborted transactions whose markers are in this segment."""
        if self._txn_index is None:
            path = self.path(TXN_INDEX)
            self._txn_index = TxnIndex(self.pool.files, path, exists=self.has_aborted)
        return self._txn_index

    def add_aborted(self, transaction: AbortedTxn) -> str | None:
        """Add a transaction to the index; return the index's path if that changed it."""
        if not self.txn_index.append(transaction):
            return None
        self.has_aborted = True
        return self.path(TXN_INDEX)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment's batches, -1 if none has one."""
        if self._max_timestamp == UNKNOWN_TIMESTAMP:
            self._max_timestamp, self.max_timestamp_offset = self.time_index.last()
        return self._max_timestamp

    @property
    def knows_max_timestamp(self) -> bool:
        """True if `max_timestamp` reads nothing."""
        return self._max_timestamp != UNKNOWN_TIMESTAMP

    @property
    def time_index_path(self) -> str:
        return self.path(TIME_INDEX)

    def set_last_time_entry(self, timestamp: int, relative_offset: int) -> None:
        """Take the largest timestamp from the last entry of the time index."""
        self.set_max_timestamp(timestamp, self.base_offset + relative_offset)

    def make_active(self) -> None:
        """Open the segment for writing."""
        if not self.is_active:
            self.pool.discard_file(self)  # it is open for reading only
            self.is_active = True

    def make_inactive(self) -> None:
        """Allow no more writes: a new segment has been begun."""
        self.is_active = False

    def set_written(self, size: int, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Extend the segment by bytes that were written after its end."""
        self.size = size
        self._max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset

    def cut_unwritten(self) -> None:
        """Remove what a failed write has left after the end of the segment."""
        self.is_loose = True  # cut again when the segment ends: only that cut is forced to disk
        try:
            self.file.truncate(self.size)
        except OSError:
            pass  # the next write goes over these bytes, and closing cuts them

    def allocate_ahead(self, file: File, end: int, segment_bytes: int) -> int:
        """Reserve space on the disk beyond a write that ends at `end`, near the segment's end.

        Return the position up to which writes need no call of this again. A file system that
        has to find blocks for every single write takes a third more time.
        """
        limit = segment_bytes - ALLOCATE_FROM_BYTES // 8
        upto = min(end + min(self.size // 2, MOST_AHEAD_BYTES), limit)
        if upto <= end:
            return segment_bytes
        file.allocate(self.size, upto - self.size)
        self.allocated_end = upto
        return upto

    def truncate_to(self, offset: int) -> None:
        """Remove the batches that reach an offset or lie after it, and make the segment active."""
        batch = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.drop_handles()
        self.is_active = True
        if batch is not None:
            self.file.truncate(batch.position)
            self.size = batch.position
        indexed = self.locate(self.offset_index.last()[0])
        timestamp, timestamp_offset = self.time_index.last()
        for later in self.batches_from(self.size if indexed is None else indexed.position):
            if later.max_timestamp > timestamp:
                timestamp, timestamp_offset = later.max_timestamp, later.last_offset
        self.set_max_timestamp(timestamp, timestamp_offset)

    def cut_for_good(self, size: int) -> None:
        """Cut the file and force that to disk: damaged bytes must not come back among new ones."""
        self.pool.discard_file(self)
        file = self.pool.open(self.path(LOG), writable=True)
        file.truncate(size)
        file.sync()
        self.size = size

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
        """Record the largest timestamp and the last offset of its batch."""
        self._max_timestamp = timestamp
        self.max_timestamp_offset = offset

    def largest_timestamp(self) -> int:
        """Return the largest timestamp, or the file's modification time if there is none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.pool.files.stat(self.path(LOG)).mtime_ms

    def create(self, index_bytes: int, preallocate_bytes: int) -> None:
        """Make the files of a new, empty, active segment."""
        self.is_active = True
        file = self.pool.open(self.path(LOG), create=True, writable=True)
        if file.size():
            file.truncate(0)
        if preallocate_bytes:
            file.truncate(preallocate_bytes)
            self.is_loose = True
        self.set_empty_indexes()
        self.offset_index.write(index_bytes)
        self.time_index.write(index_bytes)
        self.pool.files.unlink(self.path(TXN_INDEX))
        self._txn_index, self.has_aborted = None, False
        self._max_timestamp = NO_TIMESTAMP

    def set_empty_indexes(self) -> None:
        """Start with empty indexes; their files change with the first write or trim."""
        self.drop_handles()
        base_offset, pool = self.base_offset, self.pool
        self._offset_index = OffsetIndex(pool, self.path(INDEX), base_offset, 0, UNKNOWN)
        self._time_index = TimeIndex(pool, self.path(TIME_INDEX), base_offset, 0, UNKNOWN)

    def adopt_indexes(self, offset_entries: int, time_entries: int) -> None:
        """Use the first entries of the index files as they are, and forget the others."""
        self.set_empty_indexes()
        self.offset_index.adopt(offset_entries)
        self.time_index.adopt(time_entries)

    def finish(self) -> list[str]:
        """End writing: add the last time index entry and cut all files to what they hold.

        Return the files that changed: they must be forced to disk even if all batches are.
        """
        changed = []
        if self._offset_index is not None and self._time_index is not None:
            if self._max_timestamp >= 0:
                self._time_index.append(self._max_timestamp, self.max_timestamp_offset, 0)
            for index in (self._offset_index, self._time_index):
                if index.trim():
                    changed.append(index.path)
        if self.is_loose:
            self.file.truncate(self.size)
            self.is_loose = False
            changed.append(self.path(LOG))
        elif self.allocated_end > self.size:
            self.file.truncate(self.size)
        self.allocated_end = 0
        return changed

    def batches_from(self, position: int) -> Iterator[Batch]:
        """Yield the headers of the written batches from a position on; raise DamagedLog."""
        return written_batches(self.file, position, self.size, self.base_offset)

    def locate(self, offset: int) -> Batch | None:
        """Return the first batch that ends at or after `offset`, or None; raise DamagedLog.

        If the index is wrong, it is rebuilt at once, however long that takes.
        """
        try:
            self.open_indexes()
            return self.locate_by_index(offset)
        except CorruptIndex:
            self.rebuild_indexes()
            return self.locate_by_index(offset)

    def locate_by_index(self, offset: int) -> Batch | None:
        """Return what `locate` does; raise CorruptIndex if the index is wrong.

        It is wrong if no batch begins at its position, or another one.
        """
        indexed, position = self.offset_index.lookup(offset)
        if position and not 0 < position < self.size:
            raise CorruptIndex(self.path(INDEX), f"and has the position {position}")
        try:
            return self._scan_for(offset, position, indexed)
        except CorruptIndex:
            raise
        except DamagedLog:
            if not position:
                raise
        raise CorruptIndex(self.path(INDEX), f"or the segment is, from position {position} on")

    def _scan_for(self, offset: int, position: int, indexed: int) -> Batch | None:
        for batch in self.batches_from(position):
            last_offset = batch.base_offset + batch.last_offset_delta
            if batch.position == position and position and last_offset > indexed:
                reason = f": a batch ends at {last_offset}, and not at {indexed}"
                raise CorruptIndex(self.path(INDEX), reason)
            if last_offset >= offset:
                return batch
        return None

    def read_batch(self, batch: Batch) -> bytes:
        """Return all bytes of a batch of this segment."""
        return self.file.pread(batch.size, batch.position)

    def drop_handles(self) -> None:
        """Close every open file and map of the segment."""
        self.pool.discard_file(self)
        if self._offset_index is not None:
            self.pool.discard_map(self._offset_index)
        if self._time_index is not None:
            self.pool.discard_map(self._time_index)

    def forget_indexes(self) -> None:
        """Free the memory of a rolled segment's indexes. They are opened again when needed."""
        self.drop_handles()
        self._offset_index = self._time_index = self._txn_index = None

    @property
    def has_indexes(self) -> bool:
        """True if the indexes are open."""
        return self._offset_index is not None and self._time_index is not None

    def open_indexes(self) -> None:
        """Open the index files if that was not done yet, and rebuild them if they are damaged."""
        if not self.has_indexes and not self.read_indexes():
            self.rebuild_indexes()

    def read_indexes(self) -> bool:
        """Open the index files; return False if they are missing or damaged."""
        found = read_indexes(self)
        if found is None:
            return False
        self._offset_index, self._time_index = found
        return True

    def rebuild_indexes(self) -> None:
        """Rebuild the index files at once."""
        rebuild = IndexRebuild(self)
        rebuild.read_some(None)
        self.replace_indexes(rebuild)

    def replace_indexes(self, rebuild: IndexRebuild) -> None:
        """Use the indexes of a rebuild that has read all batches."""
        self.drop_handles()
        builder: IndexBuilder = rebuild.write()
        self._offset_index, self._time_index = builder.offset_index, builder.time_index
        self.set_max_timestamp(builder.max_timestamp, builder.offset)
