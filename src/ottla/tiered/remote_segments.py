"""The remote segments of one partition, as the records of `__remote_log_metadata` say.

    (unknown)       -> COPY_STARTED      an upload begins; nobody reads the segment yet
    COPY_STARTED    -> COPY_FINISHED     all its objects are there: it is readable
    COPY_STARTED, COPY_FINISHED -> DELETE_STARTED    nobody reads it any more
    DELETE_STARTED  -> DELETE_FINISHED   its objects are gone; it is forgotten

Other changes are ignored, whoever asks for them: two brokers may both believe that they lead the
partition, and the order of the records decides. `apply` is the only way in which the state
changes.

Segments may overlap, and may be of leaders whose records were lost in an unclean election. So a
segment is looked up by the leader epochs of the log that reads it: a part of a segment counts
only if the log has the same epoch there.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator

from ottla.log.state.leader_epochs import EpochCache
from ottla.tiered.metadata_records import (
    MetadataRecord,
    PartitionDelete,
    PartitionDeleteState,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)

NO_REMOTE_OFFSET = -1
_NEXT = {
    SegmentState.COPY_STARTED: (SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED),
    SegmentState.COPY_FINISHED: (SegmentState.DELETE_STARTED,),
    SegmentState.DELETE_STARTED: (SegmentState.DELETE_FINISHED,),
}


class RemoteSegments:
    """The segments of one partition."""

    __slots__ = ("_by_epoch", "delete_state", "segments", "size")

    def __init__(self) -> None:
        self.segments: dict[bytes, SegmentMetadata] = {}
        """All that have objects, or may have some, in the order in which their uploads began."""
        self.size = 0
        """The bytes of the logs of all segments that are readable."""
        self.delete_state: PartitionDeleteState | None = None
        self._by_epoch: dict[int, list[tuple[int, int, bytes]]] = {}
        """For each leader epoch the readable segments: first and last offset in it, and id."""

    def apply(self, record: MetadataRecord) -> bool:
        """Follow a record; return False if it changes nothing."""
        if isinstance(record, SegmentMetadata):
            return self._add(record)
        if isinstance(record, PartitionDelete):
            self.delete_state = record.state
            return True
        return self._update(record)

    def _add(self, segment: SegmentMetadata) -> bool:
        if segment.segment_id in self.segments or segment.state != SegmentState.COPY_STARTED:
            return False
        self.segments[segment.segment_id] = segment
        return True

    def _update(self, update: SegmentUpdate) -> bool:
        segment = self.segments.get(update.segment_id)
        if segment is None or update.state not in _NEXT[segment.state]:
            return False
        if segment.state == SegmentState.COPY_FINISHED:
            self._close(segment)
        if update.state == SegmentState.DELETE_FINISHED:
            del self.segments[segment.segment_id]
            return True
        segment = segment._replace(state=update.state)
        self.segments[segment.segment_id] = segment
        if segment.state == SegmentState.COPY_FINISHED:
            self._open(segment)
        return True

    def _open(self, segment: SegmentMetadata) -> None:
        self.size += segment.size
        for epoch, first, last in epoch_ranges(segment):
            insort(self._by_epoch.setdefault(epoch, []), (first, last, segment.segment_id))

    def _close(self, segment: SegmentMetadata) -> None:
        self.size -= segment.size
        for epoch, first, last in epoch_ranges(segment):
            self._by_epoch[epoch].remove((first, last, segment.segment_id))
            if not self._by_epoch[epoch]:
                del self._by_epoch[epoch]

    # -- lookups -------------------------------------------------------------------------

    def find(self, offset: int, epochs: EpochCache) -> SegmentMetadata | None:
        """Return the readable segment that has an offset of the log with these epochs."""
        ranges = self._by_epoch.get(epochs.epoch_for_offset(offset))
        if ranges is None:
            return None
        for number in range(bisect_right(ranges, (offset, 2**63)) - 1, -1, -1):
            first, last, segment_id = ranges[number]
            if first <= offset <= last:
                return self.segments[segment_id]
        return None

    def following(self, segment: SegmentMetadata, epochs: EpochCache) -> SegmentMetadata | None:
        """Return the segment that goes on where another one ends."""
        return self.find(segment.end_offset + 1, epochs)

    def highest_offset(self, epochs: EpochCache, log_end_offset: int) -> int:
        """Return the highest offset of a log that is readable remotely; -1 if there is none."""
        for entry in reversed(epochs.entries):
            ranges = self._by_epoch.get(entry.epoch)
            if ranges:
                end = epochs.end_offset_for(entry.epoch, log_end_offset)[1]
                return min(max(last for _, last, _ in ranges), end - 1)
        return NO_REMOTE_OFFSET

    def lowest_offset(self, epochs: EpochCache) -> int | None:
        """Return the lowest offset of a log that is readable remotely."""
        for entry in epochs.entries:
            ranges = self._by_epoch.get(entry.epoch)
            if ranges:
                return ranges[0][0]
        return None

    def chain(self, offset: int, epochs: EpochCache) -> Iterator[SegmentMetadata]:
        """Yield the segments of a log one after the other, from the one with an offset on."""
        segment = self.find(offset, epochs)
        while segment is not None:
            yield segment
            segment = self.following(segment, epochs)

    def in_state(self, *states: SegmentState) -> list[SegmentMetadata]:
        """Return the segments in one of these states."""
        return [segment for segment in self.segments.values() if segment.state in states]


def epoch_ranges(segment: SegmentMetadata) -> Iterator[tuple[int, int, int]]:
    """Yield each leader epoch of a segment with its first and last offset in the segment."""
    epochs = segment.leader_epochs
    for number, (epoch, start) in enumerate(epochs):
        last = segment.end_offset
        if number + 1 < len(epochs):
            last = epochs[number + 1].start_offset - 1
        yield epoch, max(start, segment.start_offset), last


def valid_end(
    segment: SegmentMetadata, offset: int, epochs: EpochCache, log_end_offset: int
) -> int:
    """Return the offset up to which a segment has, from an offset on, what the log has."""
    own = dict(epochs.entries)
    for epoch, first, last in epoch_ranges(segment):
        if last < offset:
            continue
        if epoch not in own or (own[epoch] != first and first > offset):
            return max(first, offset)
        end = epochs.end_offset_for(epoch, log_end_offset)[1]
        if end <= last:
            return max(end, offset)
    return segment.end_offset + 1
