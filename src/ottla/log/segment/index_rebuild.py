"""Open the indexes of a segment, and rebuild them from its batches.

An index can always be rebuilt from the batch headers. That is done if it is missing, if its
size is no multiple of an entry, or if its first or last entry contradicts the segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.file_names import INDEX, TIME_INDEX
from ottla.log.segment.offset_index import OffsetIndex
from ottla.log.segment.time_index import TimeIndex
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.batch import Batch

if TYPE_CHECKING:
    from ottla.log.segment.segment import Segment

REBUILD_INTERVAL_BYTES = 4096


class IndexBuilder:
    """Adds index entries to a segment while the caller iterates over its batches."""

    __slots__ = ("_interval", "_last_position", "_segment", "max_timestamp", "offset")

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        self._segment = segment
        self._interval = interval_bytes
        self._last_position = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset = segment.base_offset

    @classmethod
    def resume(cls, segment: Segment, interval_bytes: int) -> IndexBuilder:
        """Continue after the entries that the segment's indexes have."""
        builder = cls(segment, interval_bytes)
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
            self._segment.offset_index.append(last_offset, batch.position, index_bytes)
            self._segment.time_index.append(self.max_timestamp, self.offset, index_bytes)


def open_indexes(segment: Segment) -> tuple[OffsetIndex, TimeIndex]:
    """Return the indexes of a segment from disk, rebuilt if they cannot be right."""
    offset_index, time_index = _indexes_on_disk(segment)
    if offset_index is not None and time_index is not None:
        return offset_index, time_index
    return rebuild_indexes(segment)


def rebuild_indexes(segment: Segment) -> tuple[OffsetIndex, TimeIndex]:
    """Rebuild the indexes from the headers of the segment's batches, and trim their files."""
    segment.set_empty_indexes()
    builder = IndexBuilder(segment, REBUILD_INTERVAL_BYTES)
    for batch in segment.batches_from(0):
        builder.add(batch, 0)
    if builder.max_timestamp >= 0:
        segment.time_index.append(builder.max_timestamp, builder.offset, 0)
    segment.offset_index.trim()
    segment.time_index.trim()
    segment.set_max_timestamp(builder.max_timestamp, builder.offset)
    return segment.offset_index, segment.time_index


def _indexes_on_disk(segment: Segment) -> tuple[OffsetIndex | None, TimeIndex | None]:
    pool, base_offset = segment.pool, segment.base_offset
    paths = segment.path(INDEX), segment.path(TIME_INDEX)
    try:
        sizes = [pool.files.stat(path).size for path in paths]
    except FileNotFoundError:
        return None, None
    if sizes[0] % OffsetIndex.ENTRY_SIZE or sizes[1] % TimeIndex.ENTRY_SIZE:
        return None, None
    offsets = OffsetIndex(pool, paths[0], base_offset, sizes[0] // OffsetIndex.ENTRY_SIZE)
    times = TimeIndex(pool, paths[1], base_offset, sizes[1] // TimeIndex.ENTRY_SIZE)
    if offsets.damage(segment.size) or times.damage():
        pool.discard_map(offsets)
        pool.discard_map(times)
        return None, None
    return offsets, times
