"""The remote segments of one partition, as the records of `__remote_log_metadata` say.

    (unknown)       -> COPY_STARTED      an upload begins; nobody reads the segment yet
    COPY_STARTED    -> COPY_FINISHED     all its objects are there: it is readable
    COPY_FINISHED   -> COPY_FINISHED     it is clean up to a later offset, and stays as it is
    COPY_STARTED, COPY_FINISHED -> DELETE_STARTED    nobody reads it any more
    DELETE_STARTED  -> DELETE_FINISHED   its objects are gone; it is forgotten

As soon as the deletion of the whole remote part is marked, no upload can finish any more. It ends
with PARTITION_DELETE_FINISHED, after which the partition begins anew. The states of this deletion
follow each other, too: what a broker writes late that another one has taken over from is ignored.

Other changes are ignored, whoever asks for them: two brokers may both believe that they lead the
partition, and the order of the records decides. `apply` is the only way in which the state
changes.

A segment that was rewritten from others takes their place with its COPY_FINISHED, in one step. It
must come while all of them are readable; otherwise it is ignored, because others have replaced
or deleted some of them meanwhile. The replaced ones stay, unread, until their leader deletes
their objects.

Segments may overlap, and may be of leaders whose records were lost in an unclean election. So a
segment is looked up by the leader epochs of the log that reads it: a part of a segment counts
only if the log has the same epoch there. Where two overlap in the same epoch, the one that became
readable first counts: what was cleaned never comes back.

Replicas of a compacted log may disagree about where an epoch began, if its first batches were
removed before the topic was tiered. Then some offsets belong to no segment by their epochs,
although segments span them. The log has no records there, so such a gap is skipped (`after_gap`).
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
_NEXT_DELETE = {
    None: PartitionDeleteState.MARKED,
    PartitionDeleteState.MARKED: PartitionDeleteState.STARTED,
    PartitionDeleteState.STARTED: PartitionDeleteState.FINISHED,
}


class RemoteSegments:
    """The segments of one partition."""

    __slots__ = (
        "_by_epoch",
        "_pieces",
        "delete_state",
        "has_records",
        "replaced",
        "segments",
        "size",
    )

    def __init__(self) -> None:
        self.segments: dict[bytes, SegmentMetadata] = {}
        """All that have objects, or may have some, in the order in which their uploads began."""
        self.replaced: dict[bytes, int] = {}
        """Finished segments that nobody reads any more, and when others replaced them."""
        self.size = 0
        """The bytes of the logs of all segments that are readable."""
        self.delete_state: PartitionDeleteState | None = None
        self.has_records = False
        """True once the metadata has said anything about this partition."""
        self._by_epoch: dict[int, list[tuple[int, int, bytes]]] = {}
        """For each leader epoch what is read from which segment: first and last offset, and id."""
        self._pieces: dict[bytes, list[tuple[int, int, int]]] = {}
        """The same by segment: leader epoch, first and last offset."""

    def apply(self, record: MetadataRecord) -> bool:
        """Follow a record; return False if it changes nothing."""
        self.has_records = True
        if isinstance(record, SegmentMetadata):
            return self._add(record)
        if isinstance(record, PartitionDelete):
            if record.state != _NEXT_DELETE[self.delete_state]:
                return False
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
        if segment is None:
            return False
        if update.state == segment.state == SegmentState.COPY_FINISHED:
            return self._cleaned(segment, update.clean_upto)
        if update.state not in _NEXT[segment.state]:
            return False
        if update.state == SegmentState.COPY_FINISHED and not self.can_finish(segment):
            return False
        if segment.segment_id in self._pieces:
            self._close(segment)
            self._uncover(segment)
        if update.state == SegmentState.DELETE_FINISHED:
            del self.segments[segment.segment_id]
            self.replaced.pop(segment.segment_id, None)
            return True
        segment = segment._replace(state=update.state)
        self.segments[segment.segment_id] = segment
        if segment.state == SegmentState.COPY_FINISHED:
            for segment_id in segment.replaces:
                self._close(self.segments[segment_id])
                self.replaced[segment_id] = update.event_timestamp_ms
            self._open(segment)
        return True

    def _cleaned(self, segment: SegmentMetadata, clean_upto: int) -> bool:
        if clean_upto <= segment.clean_upto or segment.segment_id not in self._pieces:
            return False
        self.segments[segment.segment_id] = segment._replace(clean_upto=clean_upto)
        return True

    def can_finish(self, segment: SegmentMetadata) -> bool:
        """Return True if all segments that one replaces are readable, and nothing is deleted."""
        return self.delete_state is None and all(
            segment_id in self._pieces for segment_id in segment.replaces
        )

    def _open(self, segment: SegmentMetadata) -> None:
        self.size += segment.size
        self._pieces[segment.segment_id] = []
        self._add_pieces(segment)

    def _uncover(self, deleted: SegmentMetadata) -> None:
        """Read from others what a deleted segment had as well."""
        for segment_id in self._pieces:
            segment = self.segments[segment_id]
            if (
                segment.start_offset <= deleted.end_offset
                and deleted.start_offset <= segment.end_offset
            ):
                self._add_pieces(segment)

    def _add_pieces(self, segment: SegmentMetadata) -> None:
        """Read from a segment whatever is not read from others."""
        pieces = self._pieces[segment.segment_id]
        for epoch, first, last in epoch_ranges(segment):
            ranges = self._by_epoch.setdefault(epoch, [])
            for uncovered in list(_uncovered(ranges, first, last)):
                insort(ranges, (*uncovered, segment.segment_id))
                pieces.append((epoch, *uncovered))
            if not ranges:
                del self._by_epoch[epoch]
        pieces.sort(key=lambda piece: piece[1])

    def _close(self, segment: SegmentMetadata) -> None:
        self.size -= segment.size
        for epoch, first, last in self._pieces.pop(segment.segment_id):
            self._by_epoch[epoch].remove((first, last, segment.segment_id))
            if not self._by_epoch[epoch]:
                del self._by_epoch[epoch]

    # -- lookups -------------------------------------------------------------------------

    def is_readable(self, segment: SegmentMetadata) -> bool:
        """Return True if a segment is finished and not replaced."""
        return segment.segment_id in self._pieces

    def find(self, offset: int, epochs: EpochCache) -> SegmentMetadata | None:
        """Return the readable segment that has an offset of the log with these epochs."""
        ranges = self._by_epoch.get(epochs.epoch_for_offset(offset))
        if ranges is None:
            return None
        number = bisect_right(ranges, (offset, 2**63)) - 1
        if number < 0 or ranges[number][1] < offset:
            return None
        return self.segments[ranges[number][2]]

    def end_of(self, segment: SegmentMetadata, offset: int) -> int:
        """Return the offset up to which a segment is read, from one of its offsets on."""
        for _, first, last in self._pieces[segment.segment_id]:
            if first <= offset <= last:
                offset = last + 1
        return offset

    def following(self, segment: SegmentMetadata, epochs: EpochCache) -> SegmentMetadata | None:
        """Return the segment that goes on where another one ends."""
        return self.find(segment.end_offset + 1, epochs)

    def highest_offset(self, epochs: EpochCache, log_end_offset: int) -> int:
        """Return the highest offset of a log that is readable remotely; -1 if there is none."""
        for entry in reversed(epochs.entries):
            ranges = self._by_epoch.get(entry.epoch)
            if ranges:
                end = epochs.end_offset_for(entry.epoch, log_end_offset)[1]
                return min(ranges[-1][1], end - 1)
        return NO_REMOTE_OFFSET

    def lowest_offset(self, epochs: EpochCache) -> int | None:
        """Return the lowest offset of a log that is readable remotely."""
        for entry in epochs.entries:
            ranges = self._by_epoch.get(entry.epoch)
            if ranges:
                return ranges[0][0]
        return None

    def after_gap(self, offset: int, epochs: EpochCache) -> int | None:
        """Return where a compacted log goes on after an offset at which `find` finds nothing.

        None if segments do not span all offsets in between: then something is missing.
        """
        ranges = self._by_epoch.get(epochs.epoch_for_offset(offset), [])
        starts = [first for first, _, _ in ranges if first > offset][:1]
        starts += [each.start_offset for each in epochs.entries if each.start_offset > offset][:1]
        following = min(starts, default=None)
        while following is not None and offset < following:
            spanned = max((_end_at(each, offset) for each in self._by_epoch.values()), default=0)
            if spanned <= offset:
                return None
            offset = spanned
        return following

    def _next(
        self, offset: int, epochs: EpochCache, has_gaps: bool
    ) -> tuple[SegmentMetadata | None, int]:
        """Return the segment with an offset, and the offset; or those after a gap."""
        segment = self.find(offset, epochs)
        while segment is None and has_gaps:
            following = self.after_gap(offset, epochs)
            if following is None:
                break
            offset = following
            segment = self.find(offset, epochs)
        return segment, offset

    def chain(
        self, offset: int, epochs: EpochCache, *, has_gaps: bool = False
    ) -> Iterator[SegmentMetadata]:
        """Yield the segments of a log one after the other, from the one with an offset on.

        `has_gaps` says that the log is compacted.
        """
        segment, offset = self._next(offset, epochs, has_gaps)
        while segment is not None:
            yield segment
            segment, offset = self._next(self.end_of(segment, offset), epochs, has_gaps)

    def parts(
        self, offset: int, epochs: EpochCache, log_end_offset: int, *, has_gaps: bool = False
    ) -> Iterator[tuple[SegmentMetadata, int, int]]:
        """Yield the same with the offsets that are read from each: the first, and the end.

        A gap belongs to the segment after it.
        """
        first = offset
        segment, offset = self._next(offset, epochs, has_gaps)
        while segment is not None:
            end = valid_end(segment, offset, epochs, log_end_offset)
            end = min(end, self.end_of(segment, offset))
            if end <= offset:
                return
            yield segment, first, end
            first = end
            segment, offset = self._next(end, epochs, has_gaps)

    def in_state(self, *states: SegmentState) -> list[SegmentMetadata]:
        """Return the segments in one of these states."""
        return [segment for segment in self.segments.values() if segment.state in states]


def _end_at(ranges: list[tuple[int, int, bytes]], offset: int) -> int:
    """Return the end of the last range that begins at an offset or before; 0 if there is none."""
    number = bisect_right(ranges, (offset, 2**63)) - 1
    return ranges[number][1] + 1 if number >= 0 else 0


def _uncovered(
    ranges: list[tuple[int, int, bytes]], first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that are not in others, which are sorted and do not overlap."""
    number = max(bisect_right(ranges, (first, 2**63)) - 1, 0)
    for begin, end, _ in ranges[number:]:
        if begin > last:
            break
        if begin > first:
            yield first, begin - 1
        first = max(first, end + 1)
    if first <= last:
        yield first, last


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
