"""Records of a log whose beginning is in the remote tier, from the cache of remote objects.

All functions raise NotCached if something must be read first, and ObjectStoreError if that is
not possible. Then the caller asks again later.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.log.log import Log
from ottla.log.segment.file_slice import FileSlice, FileSlices
from ottla.log.segment.txn_index import TxnIndex, each_once
from ottla.ports import ObjectStoreError
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, Batch, parse_header
from ottla.tiered.layout import INDEX, TIME_INDEX, TXN_INDEX
from ottla.tiered.metadata_records import SegmentMetadata
from ottla.tiered.object_cache import CHUNK_BYTES, ObjectCache
from ottla.tiered.remote_segments import RemoteSegments, valid_end

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


class RemoteRecords(NamedTuple):
    """Batches of a remote segment, the last of which may be cut."""

    content: FileSlice | FileSlices
    segment: SegmentMetadata
    end_position: int
    """Where the batches end in the segment."""


class RemoteLog:
    """The remote part of a log, as one reader sees it now."""

    __slots__ = ("_cache", "_log", "_segments")

    def __init__(self, cache: ObjectCache, log: Log, segments: RemoteSegments) -> None:
        self._cache = cache
        self._log = log
        self._segments = segments

    # -- by offset -----------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> RemoteRecords | None:
        """Return batches from the one that holds `offset`, or the next one, as `Log.read` does.

        None if the first batch does not fit, or if there is none before the local segments.
        """
        log = self._log
        while offset < log.segments.base_offsets[0]:
            segment = self._segments.find(offset, log.leader_epochs)
            if segment is None:
                offset = self._after_gap(offset)
                continue
            end_offset = valid_end(segment, offset, log.leader_epochs, log.written_end)
            end_offset = min(end_offset, self._segments.end_of(segment, offset))
            batch = self._locate(segment, offset)
            if batch is not None and batch.base_offset < end_offset:
                return self._read(segment, batch, end_offset, max_bytes, at_least_one)
            offset = max(end_offset, offset + 1)
        return None

    def _after_gap(self, offset: int) -> int:
        """Return where the log goes on after an offset that is in no segment."""
        log = self._log
        if log.config.compacts:
            following = self._segments.after_gap(offset, log.leader_epochs)
            if following is not None:
                return following
        raise ObjectStoreError(f"{log.topic_partition} has no remote segment with offset {offset}")

    def _read(
        self,
        segment: SegmentMetadata,
        first: Batch,
        end_offset: int,
        max_bytes: int,
        at_least_one: bool,
    ) -> RemoteRecords | None:
        if first.size > max_bytes and not at_least_one:
            return None
        end = min(first.position + max(max_bytes, first.size), segment.size)
        if end_offset <= segment.end_offset:
            end = self._end_before(segment, first, end_offset, end)
        if end == segment.size:
            following = self._segments.following(segment, self._log.leader_epochs)
            if following is not None and following.start_offset < self._log.local_log_start_offset:
                self._cache.prefetch(following)
        content = self._content(segment, first.position, first.end, end)
        return RemoteRecords(content, segment, first.position + content.length)

    def _end_before(self, segment: SegmentMetadata, first: Batch, end_offset: int, end: int) -> int:
        """Return the position of the first batch from which on the segment is not of this log."""
        position = first.end
        while position < end:
            batch = self._header(segment, position)
            if batch is None or batch.base_offset >= end_offset:
                return position
            position = batch.end
        return end

    def _content(
        self, segment: SegmentMetadata, start: int, needed: int, end: int
    ) -> FileSlice | FileSlices:
        """Return the bytes from `start`, at least up to `needed`, at most up to `end`.

        They stay where they are in the cache, and are sent from there.
        """
        parts = []
        position = start
        while position < end:
            number, skipped = divmod(position, CHUNK_BYTES)
            chunk = self._cache.has_chunk(segment, number)
            if chunk is None or position == start:
                if position >= needed:
                    break
                chunk = self._cache.chunk(segment, number)
            length = min(chunk.length - skipped, end - position)
            parts.append(FileSlice(chunk.file, chunk.position + skipped, length))
            position += length
        return parts[0] if len(parts) == 1 else FileSlices(parts, position - start)

    def _copy(self, segment: SegmentMetadata, start: int, end: int) -> bytes:
        """Return bytes of a segment, from as many chunks as they are in."""
        parts = []
        position = start
        while position < end:
            number, skipped = divmod(position, CHUNK_BYTES)
            length = min(end - position, CHUNK_BYTES - skipped)
            chunk = self._cache.chunk(segment, number)
            parts.append(chunk.file.pread(length, chunk.position + skipped))
            position += length
        return b"".join(parts)

    def _locate(self, segment: SegmentMetadata, offset: int) -> Batch | None:
        """Return the first batch of a segment that ends at or after an offset."""
        position = 0
        if offset > segment.start_offset:
            position = self._position_of(segment, offset)
        while position < segment.size:
            batch = self._header(segment, position)
            if batch is None:
                return None
            if batch.last_offset >= offset:
                return batch
            position = batch.end
        return None

    def _position_of(self, segment: SegmentMetadata, offset: int) -> int:
        """Return where to look for an offset, from the offset index."""
        index = self._cache.whole(segment, INDEX)
        low, high = 0, len(index) // _OFFSET_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            relative = _OFFSET_ENTRY.unpack_from(index, middle * _OFFSET_ENTRY.size)[0]
            if segment.start_offset + relative <= offset:
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0
        position: int = _OFFSET_ENTRY.unpack_from(index, (low - 1) * _OFFSET_ENTRY.size)[1]
        return position

    def _header(self, segment: SegmentMetadata, position: int) -> Batch | None:
        """Return the header of the batch at a position; None at the end of the segment."""
        if position + HEADER_SIZE > segment.size:
            return None
        batch = parse_header(self._copy(segment, position, position + HEADER_SIZE), 0)
        if batch.magic != MAGIC_V2 or batch.batch_length < HEADER_SIZE - LOG_OVERHEAD:
            raise ObjectStoreError(
                f"a remote segment of {self._log.topic_partition} is damaged at position {position}"
            )
        return batch._replace(position=position)

    # -- transactions --------------------------------------------------------------------

    def aborted(self, offset: int, records: RemoteRecords) -> bytearray:
        """Return entries of the aborted transactions that may have records in what was read."""
        log, found = self._log, bytearray()
        upper = -1
        last = records.segment.start_offset
        for segment in self._chain(offset):
            last = segment.end_offset + 1
            if segment.has_aborted:
                if upper < 0:
                    upper = self._upper_bound(records)
                entries = self._cache.whole(segment, TXN_INDEX)
                if TxnIndex.of(log.resources.files, entries).collect(offset, upper, found):
                    return found
        for local in log.segments.from_offset(last):
            if local.has_aborted:
                if upper < 0:
                    upper = self._upper_bound(records)
                if local.txn_index.collect(offset, upper, found):
                    break
        return each_once(found)  # a local segment may overlap the last remote one

    def _chain(self, offset: int) -> Iterator[SegmentMetadata]:
        log = self._log
        return self._segments.chain(offset, log.leader_epochs, has_gaps=log.config.compacts)

    def _upper_bound(self, records: RemoteRecords) -> int:
        """Return an offset after all batches of records."""
        segment = records.segment
        index = self._cache.whole(segment, INDEX)
        low, high = 0, len(index) // _OFFSET_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if _OFFSET_ENTRY.unpack_from(index, middle * _OFFSET_ENTRY.size)[1] < (
                records.end_position
            ):
                low = middle + 1
            else:
                high = middle
        if low * _OFFSET_ENTRY.size >= len(index):
            return segment.end_offset + 1
        relative: int = _OFFSET_ENTRY.unpack_from(index, low * _OFFSET_ENTRY.size)[0]
        return segment.start_offset + relative

    # -- by time -------------------------------------------------------------------------

    def candidates(self, timestamp_ms: int) -> list[SegmentMetadata]:
        """Return the segments before the local ones that may have a record so late."""
        log, found = self._log, []
        for segment in self._chain(log.log_start_offset):
            if segment.start_offset >= log.segments.base_offsets[0]:
                break
            if segment.max_timestamp_ms >= timestamp_ms:
                found.append(segment)
        return found

    def batches_at(self, segment: SegmentMetadata, timestamp_ms: int) -> RemoteBatches:
        """Return the batches of a segment from where a timestamp may be."""
        index = self._cache.whole(segment, TIME_INDEX)
        low, high = 0, len(index) // _TIME_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if _TIME_ENTRY.unpack_from(index, middle * _TIME_ENTRY.size)[0] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        relative = _TIME_ENTRY.unpack_from(index, (low - 1) * _TIME_ENTRY.size)[1] if low else 0
        offset = max(segment.start_offset + relative, self._log.log_start_offset)
        return RemoteBatches(self, segment, self._locate(segment, offset))

    def next_batch(self, segment: SegmentMetadata, batch: Batch) -> Batch | None:
        """Return the batch after another one."""
        return self._header(segment, batch.end)

    def batch_bytes(self, segment: SegmentMetadata, batch: Batch) -> bytes:
        """Return all bytes of a batch."""
        return self._copy(segment, batch.position, min(batch.end, segment.size))


class RemoteBatches:
    """Batches of a remote segment one after the other, and their bytes for a search in them."""

    __slots__ = ("_log", "_segment", "batch")

    def __init__(self, log: RemoteLog, segment: SegmentMetadata, batch: Batch | None) -> None:
        self._log = log
        self._segment = segment
        self.batch = batch

    def advance(self) -> None:
        """Go on with the next batch."""
        assert self.batch is not None
        self.batch = self._log.next_batch(self._segment, self.batch)

    def read_batch(self, batch: Batch) -> bytes:
        """Return all bytes of a batch."""
        return self._log.batch_bytes(self._segment, batch)
