"""Work on the indexes of closed segments that would hold the loop for too long.

Three things are done in the background, in small steps: rebuilding the indexes of a large
segment, reading the largest timestamps of many segments after a start, and reading large
transaction indexes, or many of them. Until they are done,
lookups raise `IndexNotReady`, and clients ask again. While the broker starts, nobody waits for the
loop, and everything is done at once.

The background reads through files of its own and changes nothing. The results are put in place
on the loop, unless the segment has gone meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ottla.log.damage import CorruptIndex
from ottla.log.file_names import TXN_INDEX
from ottla.log.segment.index_rebuild import IndexRebuild
from ottla.log.segment.time_index import last_entry
from ottla.log.segment.txn_index import TxnEntries, read_txn_entries
from ottla.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.log.resources import Resources
    from ottla.log.segment.segment import Segment
    from ottla.records.batch import Batch

AT_ONCE_BYTES = 256 * 1024
"""A smaller segment has its indexes rebuilt at once: that takes a few milliseconds."""

BATCHES_AT_A_TIME = 500
SEGMENTS_AT_ONCE = 50
"""How many segments may have their timestamps read on the loop."""

SEGMENTS_AT_A_TIME = 500
MOST_REBUILDS = 8
"""How many segments have their indexes rebuilt at the same time. Each has an open file."""


class IndexNotReady(ApiError):
    """An index is being read or rebuilt in the background. The client asks again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.OFFSET_NOT_AVAILABLE, "an index is being rebuilt")


class IndexJobs:
    """The work on indexes that is under way, for all logs of a broker."""

    __slots__ = ("_reading", "_reading_aborted", "_rebuilds", "_resources", "is_serving")

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.is_serving = False
        """True once the loop serves requests, and must not be held."""
        self._rebuilds: dict[Segment, IndexRebuild] = {}
        self._reading: set[Segment] = set()
        """Segments whose largest timestamps are being read."""
        self._reading_aborted: set[Segment] = set()
        """Segments whose transaction indexes are being read."""

    def __len__(self) -> int:
        return len(self._rebuilds) + len(self._reading) + len(self._reading_aborted)

    def open(self, segment: Segment) -> None:
        """Open the indexes of a segment; raise IndexNotReady if that takes longer."""
        if not segment.has_indexes and (segment in self._rebuilds or not segment.read_indexes()):
            self._rebuild(segment)

    def locate(self, segment: Segment, offset: int) -> Batch | None:
        """Return what `Segment.locate` does; raise IndexNotReady if that takes longer."""
        self.open(segment)
        try:
            return segment.locate_by_index(offset)
        except CorruptIndex:
            segment.forget_indexes()
            self._rebuild(segment)
            return segment.locate_by_index(offset)

    def offset_before(self, segment: Segment, timestamp_ms: int) -> int:
        """Return an offset at or before the first record with this timestamp or a later one.

        Raise IndexNotReady if that takes longer.
        """
        self.open(segment)
        try:
            return segment.time_index.lookup(timestamp_ms)[1]
        except CorruptIndex:
            segment.forget_indexes()
            self._rebuild(segment)
            return segment.time_index.lookup(timestamp_ms)[1]

    def read_timestamps(self, segments: Sequence[Segment]) -> None:
        """Learn the largest timestamps of segments; raise IndexNotReady if that takes longer."""
        unknown = [segment for segment in segments if not segment.knows_max_timestamp]
        if len(unknown) > SEGMENTS_AT_ONCE and self.is_serving:
            if self._reading.isdisjoint(unknown):
                self._start_reading(unknown)
            raise IndexNotReady
        for segment in unknown:
            self.open(segment)

    def collect_aborted(self, segments: Sequence[Segment], offset: int, upper: int) -> bytearray:
        """Return the entries of aborted transactions with records from `offset` to before `upper`.

        The segments are those from `offset` on. Raise IndexNotReady if that takes longer.
        """
        found = bytearray()
        read = 0
        for number, segment in enumerate(segments):
            if not segment.has_aborted:
                continue
            index = segment.txn_index
            if self.is_serving and not index.is_read:
                read += 1
                if read > SEGMENTS_AT_ONCE or index.is_large:
                    self._start_reading_aborted(segments[number:])
                    raise IndexNotReady
            if index.collect(offset, upper, found):
                break
        return found

    def cancel(self, segment: Segment) -> None:
        """Forget the work on a segment that is cut, removed or not used any more."""
        self._rebuilds.pop(segment, None)
        self._reading.discard(segment)
        self._reading_aborted.discard(segment)

    def _rebuild(self, segment: Segment) -> None:
        """Rebuild the indexes of a small segment; start that and raise IndexNotReady else."""
        if segment.size <= AT_ONCE_BYTES or segment.is_active or not self.is_serving:
            segment.rebuild_indexes()
            return
        if segment not in self._rebuilds and len(self._rebuilds) < MOST_REBUILDS:
            self._start_rebuild(segment)
        raise IndexNotReady

    def _start_rebuild(self, segment: Segment) -> None:
        rebuild = self._rebuilds[segment] = IndexRebuild(segment)
        resources = self._resources

        def read(result: bool | OSError) -> None:
            if self._rebuilds.get(segment) is not rebuild:
                return
            if result is True:
                submit()
                return
            del self._rebuilds[segment]
            try:
                if isinstance(result, OSError):
                    raise result
                segment.replace_indexes(rebuild)
            except OSError as error:
                resources.on_error(segment.directory, error)

        def submit() -> None:
            resources.background.submit(lambda: rebuild.read_some(BATCHES_AT_A_TIME), read)

        resources.notes.append(f"{segment.directory}: rebuilding the indexes of {segment}")
        submit()

    def _start_reading(self, segments: list[Segment]) -> None:
        some, rest = segments[:SEGMENTS_AT_A_TIME], segments[SEGMENTS_AT_A_TIME:]
        files = self._resources.files
        paths = [segment.time_index_path for segment in some]
        self._reading.update(some)

        def done(found: list[tuple[int, int] | None] | OSError) -> None:
            wanted = [segment in self._reading for segment in some]
            self._reading.difference_update(some)
            if isinstance(found, OSError):
                self._resources.on_error(some[0].directory, found)
                return
            damaged = []
            for segment, entry, is_wanted in zip(some, found, wanted, strict=True):
                if not is_wanted or segment.knows_max_timestamp:
                    continue
                if entry is None:
                    damaged.append(segment)
                else:
                    segment.set_last_time_entry(*entry)
            self._open_some(damaged)
            if rest:
                self._start_reading(rest)

        self._resources.background.submit(lambda: [last_entry(files, path) for path in paths], done)

    def _start_reading_aborted(self, segments: Sequence[Segment]) -> None:
        unread = (each for each in segments if each.has_aborted and not each.txn_index.is_read)
        some = list(islice(unread, SEGMENTS_AT_A_TIME))
        if not self._reading_aborted.isdisjoint(some):
            return
        self._reading_aborted.update(some)
        files = self._resources.files
        paths = [segment.path(TXN_INDEX) for segment in some]

        def done(found: list[TxnEntries] | OSError) -> None:
            wanted = [segment in self._reading_aborted for segment in some]
            self._reading_aborted.difference_update(some)
            if isinstance(found, OSError):
                self._resources.on_error(some[0].directory, found)
                return
            for segment, entries, is_wanted in zip(some, found, wanted, strict=True):
                if is_wanted:
                    segment.txn_index.set_entries(entries)

        self._resources.background.submit(
            lambda: [read_txn_entries(files, path) for path in paths], done
        )

    def _open_some(self, damaged: list[Segment]) -> None:
        """Rebuild the indexes of a few segments; the next request comes to the others."""
        for segment in damaged[:MOST_REBUILDS]:
            try:
                self.open(segment)
            except IndexNotReady:
                continue
            except OSError as error:
                self._resources.on_error(segment.directory, error)
