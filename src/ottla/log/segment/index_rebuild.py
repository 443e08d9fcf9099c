"""Open the indexes of a segment, and rebuild them from its batches.

An index can always be rebuilt from the batch headers. That is done if it is missing, if its
size is no multiple of an entry, or if its first or last entry contradicts the segment. The files
are written when all batches were read: a segment that is damaged keeps the files it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ottla.log.file_names import INDEX, LOG, TIME_INDEX
from ottla.log.segment.batch_scan import written_batches
from ottla.log.segment.index_file import COLLECTED
from ottla.log.segment.offset_index import OffsetIndex
from ottla.log.segment.time_index import TimeIndex
from ottla.model.ids import NO_TIMESTAMP
from ottla.ports import File
from ottla.records.batch import Batch

if TYPE_CHECKING:
    from ottla.log.segment.segment import Segment

REBUILD_INTERVAL_BYTES = 4096


class IndexBuilder:
    """Adds entries to the indexes of a segment while the caller iterates over its batches."""

    __slots__ = (
        "_interval",
        "_last_position",
        "max_timestamp",
        "offset",
        "offset_index",
        "time_index",
    )

    def __init__(
        self, offset_index: OffsetIndex, time_index: TimeIndex, interval_bytes: int
    ) -> None:
        self.offset_index = offset_index
        self.time_index = time_index
        self._interval = interval_bytes
        self._last_position = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset = offset_index.base_offset

    @classmethod
    def resume(cls, segment: Segment, interval_bytes: int) -> IndexBuilder:
        """Continue after the entries that the segment's indexes have."""
        builder = cls(segment.offset_index, segment.time_index, interval_bytes)
        builder._last_position = segment.offset_index.last()[1]
        builder.max_timestamp, builder.offset = segment.time_index.last()
        return builder

    def add(self, batch: Batch, index_bytes: int) -> None:
        """Add the next batch, with index entries if they are due."""
        last_offset = batch.last_offset
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset = batch.max_timestamp, last_offset
        if batch.position - self._last_position > self._interval:
            self._last_position = batch.position
            self.offset_index.append(last_offset, batch.position, index_bytes)
            self.time_index.append(self.max_timestamp, self.offset, index_bytes)


class IndexRebuild:
    """Rebuilds the indexes of one segment: `read_some` until it returns False, then `write`."""

    __slots__ = ("_batches", "_builder", "_file")

    def __init__(self, segment: Segment) -> None:
        pool, base_offset, path = segment.pool, segment.base_offset, segment.path(LOG)
        self._file: File = pool.open(path)
        self._batches: Iterator[Batch] = written_batches(self._file, 0, segment.size, base_offset)
        self._builder = IndexBuilder(
            OffsetIndex(pool, segment.path(INDEX), base_offset, 0, COLLECTED),
            TimeIndex(pool, segment.path(TIME_INDEX), base_offset, 0, COLLECTED),
            REBUILD_INTERVAL_BYTES,
        )

    def read_some(self, count: int | None) -> bool:
        """Read headers, all of them without a `count`; return False if there are none left.

        Raise DamagedLog.
        """
        builder, batch = self._builder, None
        for batch in islice(self._batches, count):
            builder.add(batch, 0)
        return batch is not None and count is not None

    def write(self) -> IndexBuilder:
        """Write the index files, and return the builder with the indexes."""
        builder = self._builder
        if builder.max_timestamp >= 0:
            builder.time_index.append(builder.max_timestamp, builder.offset, 0)
        builder.offset_index.trim()
        builder.time_index.trim()
        return builder


def read_indexes(segment: Segment) -> tuple[OffsetIndex, TimeIndex] | None:
    """Return the indexes of a segment from disk; None if they cannot be right."""
    pool, base_offset = segment.pool, segment.base_offset
    paths = segment.path(INDEX), segment.path(TIME_INDEX)
    try:
        sizes = [pool.files.stat(path).size for path in paths]
    except FileNotFoundError:
        return None
    if sizes[0] % OffsetIndex.ENTRY_SIZE or sizes[1] % TimeIndex.ENTRY_SIZE:
        return None
    offsets = OffsetIndex(pool, paths[0], base_offset, sizes[0] // OffsetIndex.ENTRY_SIZE)
    times = TimeIndex(pool, paths[1], base_offset, sizes[1] // TimeIndex.ENTRY_SIZE)
    if offsets.damage(segment.size) or times.damage():
        pool.discard_map(offsets)
        pool.discard_map(times)
        return None
    return offsets, times
