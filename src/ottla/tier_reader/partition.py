"""`RemotePartition`: the remote part of a partition's log, read without a broker."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TypeVar

from ottla.log.state.producer_snapshot import CorruptSnapshot, decode_snapshot
from ottla.ports import ObjectNotFound
from ottla.records.batch import MAGIC_V2, CorruptBatch
from ottla.records.record import Record
from ottla.records.timestamp_search import first_record_at
from ottla.server.object_stores.blocking_store import BlockingStore
from ottla.tier_reader.aborted_ranges import AbortedRanges, parse_txn_index
from ottla.tier_reader.batch_stream import RemoteBatch, batches_in
from ottla.tier_reader.errors import DamagedObject, MissingRecords, TierError
from ottla.tier_reader.index_lookup import offset_to_search_from, position_for
from ottla.tier_reader.listing import PartitionListing, chain_of, list_partition
from ottla.tier_reader.objects import read_in_pieces, read_object
from ottla.tier_reader.segment_chain import ChainedSegment
from ottla.tiered.layout import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX

T = TypeVar("T")


class RemotePartition:
    """The remote segments of one partition, as they were when they were listed.

    While they are read, segments of a compacted topic may be replaced by rewritten ones: then they
    are listed again. Retention may delete a segment: this raises ObjectNotFound.
    """

    def __init__(self, store: BlockingStore, listing: PartitionListing) -> None:
        """Raise DamagedObject if a manifest or the log start offset cannot be read."""
        if listing.damaged:
            raise listing.damaged[0]
        self._store = store
        self._stable_offset: int | None = None
        self.topic = listing.topic
        self.topic_id = listing.topic_id
        self.partition = listing.partition
        self.segments = chain_of(store, listing).segments
        """The segments in the order of their offsets, and the offsets read from each."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read; the same as `next_offset` if there is none."""
        return self.segments[0].first_offset if self.segments else 0

    @property
    def next_offset(self) -> int:
        """The offset after the last one that can be read."""
        return self.segments[-1].last_offset + 1 if self.segments else 0

    @property
    def stable_offset(self) -> int:
        """The offset up to which all transactions are decided, as far as the tier can tell.

        A transaction that is open at the end of the last segment ends in one that has not been
        uploaded yet.
        """
        if self._stable_offset is None:
            self._stable_offset = self._looking_again(self._find_stable_offset)
        return self._stable_offset

    def batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        read_committed: bool = False,
    ) -> Iterator[RemoteBatch]:
        """Yield the batches that have records from `start_offset` to before `end_offset`.

        The first one may begin before `start_offset`: batches are whole. Control batches are left
        out. With `read_committed`, batches of aborted transactions are left out too, and it ends
        at `stable_offset`. Each batch's CRC is checked. Raise MissingRecords if segments are
        missing in between, DamagedObject and ObjectStoreError.
        """
        start = self.start_offset if start_offset is None else start_offset
        start = max(start, self.start_offset)
        end = self.next_offset if end_offset is None else min(end_offset, self.next_offset)
        if read_committed:
            end = min(end, self.stable_offset)
        while True:
            try:
                for batch in self._batches(start, end, read_committed):
                    start = max(start, batch.header.next_offset)
                    yield batch
                return
            except ObjectNotFound:
                if not self._look_again(start):
                    raise

    def _looking_again(self, look_up: Callable[[], T]) -> T:
        """Return what a lookup finds; do it again if a segment was replaced meanwhile."""
        while True:
            try:
                return look_up()
            except ObjectNotFound:
                if not self._look_again(self.start_offset):
                    raise

    def _look_again(self, offset: int) -> bool:
        """List the segments again; return False if none was replaced, or an offset was deleted."""
        known = {segment.manifest.segment_id for segment in self.segments}
        listing = list_partition(self._store, self.topic, self.topic_id, self.partition)
        if listing.damaged:
            raise listing.damaged[0]
        if known <= {manifest.segment_id for manifest in listing.manifests}:
            return False
        segments = chain_of(self._store, listing).segments
        if not segments or segments[0].first_offset > offset:
            return False
        self.segments = segments
        return True

    def _batches(self, start: int, end: int, read_committed: bool) -> Iterator[RemoteBatch]:
        aborted = AbortedRanges()
        for number in range(self._segment_with(start), len(self.segments)):
            segment = self.segments[number]
            if segment.first_offset >= end:
                return
            if number and start < segment.first_offset:
                self._check_continuity(number)
            if read_committed:
                aborted.forget_before(max(start, segment.first_offset))
                self._add_aborted(aborted, number)
            for batch in self._segment_batches(segment, start, end):
                if not batch.header.is_control and not aborted.covers(batch.header):
                    yield batch

    def records(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        read_committed: bool = False,
    ) -> Iterator[Record]:
        """Yield the records from `start_offset` to before `end_offset`; see `batches`."""
        first = self.start_offset if start_offset is None else start_offset
        first = max(first, self.start_offset)
        for batch in self.batches(start_offset, end_offset, read_committed=read_committed):
            try:
                found = batch.records()
            except CorruptBatch as error:
                offset = batch.header.base_offset
                raise TierError(f"{self}: the batch at offset {offset}: {error.reason}") from None
            for record in found:
                if record.offset >= first and (end_offset is None or record.offset < end_offset):
                    yield record

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record that is not earlier, or None if all are."""
        return self._looking_again(lambda: self._offset_for_timestamp(timestamp_ms))

    def _offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        for segment in self.segments:
            if segment.manifest.max_timestamp_ms < timestamp_ms:
                continue
            found = self._search(segment, timestamp_ms)
            if found is not None:
                return found
        return None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def _segment_with(self, offset: int) -> int:
        """Return the number of the segment that has an offset, or of the next one."""
        at = bisect_right(self.segments, offset, key=lambda each: each.first_offset)
        return at - 1 if at and self.segments[at - 1].last_offset >= offset else at

    def _segment_batches(
        self, segment: ChainedSegment, start: int, end: int
    ) -> Iterator[RemoteBatch]:
        """Yield the batches of one segment that overlap [start, end) and the segment's part."""
        manifest, first, last = segment
        first, end = max(first, start), min(end, last + 1)
        position = 0
        if first > manifest.start_offset:
            index = read_object(self._store, manifest, INDEX)
            position = position_for(index, manifest.start_offset, first)
        pieces = read_in_pieces(self._store, manifest.key(LOG), position, manifest.size)
        for batch in batches_in(pieces, manifest, position):
            if batch.header.base_offset >= end:
                return
            if batch.header.last_offset >= first:
                yield batch

    def _check_continuity(self, number: int) -> None:
        earlier, segment = self.segments[number - 1], self.segments[number]
        if segment.first_offset > earlier.last_offset + 1:
            raise MissingRecords(str(self), earlier.last_offset + 1, segment.first_offset - 1)

    def _add_aborted(self, aborted: AbortedRanges, number: int) -> None:
        """Add the aborted transactions that have records in a segment.

        An entry stands in the index of the segment with the marker. No later one matters once an
        entry says that all transactions before this segment's end were decided.
        """
        end = self.segments[number].last_offset + 1
        for segment in self.segments[number:]:
            manifest = segment.manifest
            if TXN_INDEX not in manifest.objects:
                continue
            try:
                entries = parse_txn_index(read_object(self._store, manifest, TXN_INDEX))
            except ValueError as error:
                raise DamagedObject(manifest.key(TXN_INDEX), str(error)) from None
            aborted.add(entries)
            if entries and entries[-1].last_stable_offset >= end:
                return

    def _find_stable_offset(self) -> int:
        """Return where the first transaction begins that is open at the end of the last segment.

        The producer snapshot of the last segment says so. If there is none, the batches after
        the last snapshot are read.
        """
        number, begins = self._last_snapshot()
        for segment in self.segments[number + 1 :]:
            for batch in self._segment_batches(segment, segment.first_offset, self.next_offset):
                header = batch.header
                if header.is_control:
                    begins.pop(header.producer_id, None)
                elif header.is_transactional:
                    begins.setdefault(header.producer_id, header.base_offset)
        return min(begins.values(), default=self.next_offset)

    def _last_snapshot(self) -> tuple[int, dict[int, int]]:
        """Return the last segment with a snapshot, -1 if none, and transactions open at its end."""
        for number in range(len(self.segments) - 1, -1, -1):
            manifest, _, last_offset = self.segments[number]
            if SNAPSHOT not in manifest.objects or last_offset != manifest.end_offset:
                continue
            try:
                entries = decode_snapshot(read_object(self._store, manifest, SNAPSHOT))
            except CorruptSnapshot as error:
                raise DamagedObject(manifest.key(SNAPSHOT), str(error)) from None
            begins = {
                producer_id: entry.current_txn_first_offset
                for producer_id, entry in entries.items()
                if entry.current_txn_first_offset >= 0
            }
            return number, begins
        return -1, {}

    def _search(self, segment: ChainedSegment, timestamp_ms: int) -> int | None:
        manifest = segment.manifest
        index = read_object(self._store, manifest, TIME_INDEX)
        start = offset_to_search_from(index, manifest.start_offset, timestamp_ms)
        for batch in self._segment_batches(segment, start, segment.last_offset + 1):
            if batch.header.max_timestamp < timestamp_ms:
                continue
            if batch.header.magic != MAGIC_V2:
                return max(batch.header.base_offset, segment.first_offset)
            found = first_record_at(batch.data, 0, timestamp_ms, segment.first_offset)
            if found is not None:
                return found.offset
        return None
