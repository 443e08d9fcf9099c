"""What stays of the batches of one chunk, and its way into a new segment, as arrays (numpy).

Batches that stay as they are stay where they are: neighbours are written as one range. Those with
fewer records are made many at a time, in one buffer.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np

from ottla.log.cleaner.batch_headers import BatchHeaders
from ottla.log.cleaner.chunk_results import KeptBatches
from ottla.log.cleaner.cleaned_batches import CleanedSegment
from ottla.log.cleaner.record_arrays import Array
from ottla.ports import Buffer

_NOTHING: Final = -1
_INPUT: Final = 0
_OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


class ChunkOutput:
    """For each batch of a chunk, where the bytes are that stay of it. At first none stay."""

    def __init__(self, data: bytearray, headers: BatchHeaders) -> None:
        self._headers = headers
        self._buffers: list[Buffer] = [data]
        self._sources = np.full(len(headers), _NOTHING, np.int64)
        """The number of the buffer that has a batch."""
        self._starts, self._ends = headers.starts.copy(), headers.ends.copy()
        self._timestamps = headers.max_timestamps.copy()

    def keep(self, numbers: Array) -> None:
        """Let these batches stay as they are."""
        self._sources[numbers] = _INPUT

    def put(self, numbers: Array, content: Buffer, ends: Array, timestamps: Array) -> None:
        """Put others in the place of these batches: they follow each other in a buffer.

        `ends` says where each ends there, and `timestamps` has their largest timestamps.
        """
        self._sources[numbers] = len(self._buffers)
        self._buffers.append(content)
        self._starts[numbers[1:]], self._starts[numbers[0]] = ends[:-1], 0
        self._ends[numbers] = ends
        self._timestamps[numbers] = timestamps

    def put_one(self, position: int, content: Buffer, timestamp: int) -> None:
        """Put another one in the place of the batch at a position of the input."""
        number = np.searchsorted(self._headers.starts, [position])
        self.put(number, content, np.array([len(content)]), np.array([timestamp]))

    def kept(self) -> tuple[list[Buffer], KeptBatches]:
        """Return the bytes of what stays, in pieces, and what it is."""
        chosen = np.flatnonzero(self._sources != _NOTHING)
        starts, ends, sources = self._starts[chosen], self._ends[chosen], self._sources[chosen]
        begins = np.ones(len(chosen), bool)
        begins[1:] = (starts[1:] != ends[:-1]) | (sources[1:] != sources[:-1])
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts, len(chosen))[1:] - 1
        ranges = zip(
            sources[firsts].tolist(), starts[firsts].tolist(), ends[lasts].tolist(), strict=True
        )
        views = [memoryview(buffer) for buffer in self._buffers]
        sizes = ends - starts
        return [views[source][start:end] for source, start, end in ranges], KeptBatches(
            sizes,
            self._headers.last_offsets[chosen],
            self._timestamps[chosen],
            int(sizes[sources == _INPUT].sum()),
        )


class ArrayCleanedSegment(CleanedSegment):
    """The same as `CleanedSegment`, for many batches at once."""

    def add_all(self, content: list[Buffer], kept: KeptBatches) -> None:
        """Add batches; `content` has all of them, in pieces, unless they are in the file."""
        sizes, last_offsets = kept.sizes, kept.last_offsets
        self.unchanged_bytes += kept.unchanged_bytes
        if not len(sizes):
            return
        positions = self.size + np.cumsum(sizes) - sizes
        largest = np.maximum.accumulate(np.maximum(kept.timestamps, self.max_timestamp))
        is_new = largest > np.append(np.int64(self.max_timestamp), largest[:-1])
        newest = np.maximum.accumulate(np.where(is_new, np.arange(len(sizes)), -1))
        largest_at = np.where(newest < 0, self.max_timestamp_offset, last_offsets[newest])
        self.max_timestamp, self.max_timestamp_offset = int(largest[-1]), int(largest_at[-1])
        self._batches += content
        self.size += int(sizes.sum())
        indexed = self._indexed(positions)
        if len(indexed):
            self._indexed_position = int(positions[indexed[-1]])
            self._add_offset_entries(last_offsets[indexed], positions[indexed])
            self._add_time_entries(largest[indexed], largest_at[indexed])

    def _indexed(self, positions: Array) -> Array:
        """Return which of the batches at these positions get entries in the indexes."""
        last, interval = self._indexed_position, self._interval
        if positions[0] - last > interval and (positions[1:] - positions[:-1] > interval).all():
            return np.arange(len(positions))
        found, places, number = [], positions.tolist(), 0
        while (number := bisect_right(places, last + interval, number)) < len(places):
            found.append(number)
            last = places[number]
        return np.array(found, np.int64)

    def _add_offset_entries(self, last_offsets: Array, positions: Array) -> None:
        entries = np.empty(len(positions), _OFFSET_ENTRY)
        entries["offset"] = last_offsets - self._base_offset
        entries["position"] = positions
        self._offset_entries += entries.tobytes()

    def _add_time_entries(self, timestamps: Array, offsets: Array) -> None:
        """Add entries for timestamps, which never fall, unless they are there already."""
        is_new = timestamps > np.append(np.int64(self._last_time_entry), timestamps[:-1])
        if is_new.any():
            self._last_time_entry = int(timestamps[-1])
            entries = np.empty(int(is_new.sum()), _TIME_ENTRY)
            entries["timestamp"] = timestamps[is_new]
            entries["offset"] = offsets[is_new] - self._base_offset
            self._time_entries += entries.tobytes()
