"""Index files: reads the entries and checks each one against the segment.

The position of an offset index entry must be the start of a batch that does not begin after
the entry's offset, so that a search from there finds the offset. A time index entry must name
a batch with that timestamp, and no earlier batch may have a larger one. In a time index that
is complete, the last entry is the largest timestamp of its segment. Retention relies on this.

Entries increase strictly. Zeros at the end of a file are preallocated: an index has its full
length while its segment is active, and after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

from ottla.cli.dump_log.findings import Damage, Finding, Note, Row, Summary
from ottla.cli.dump_log.segment import header_at
from ottla.cli.dump_log.source import CHUNK_BYTES, Source
from ottla.records.batch import Batch, CorruptBatch
from ottla.records.legacy import Message

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_ABORTED_TXN: Final = Struct(">hqqqq")
_HEADER_READ_BYTES: Final = 16 * 1024

_Entry: TypeAlias = tuple[int, tuple[int, ...]]
"""The position in the index, and the fields."""


def offset_index_findings(
    source: Source, base_offset: int, segment: Source | None
) -> Iterator[Finding]:
    """Yield the entries of a `.index` file."""
    headers = None if segment is None else _Headers(segment)
    previous = (base_offset - 1, -1)
    count = 0
    for finding in _entries(source, _OFFSET_ENTRY):
        if isinstance(finding, Note | Damage):
            yield finding
            continue
        at, (relative, position) = finding
        offset = base_offset + relative
        count += 1
        yield Row("offset index entry", {"offset": offset, "position": position})
        reason = _rising("offset", previous[0], offset) or _rising(
            "position", previous[1], position
        )
        if reason is None and headers is not None:
            reason = headers.check_position(offset, position, previous[0])
            headers = headers.usable()
        if reason is not None:
            yield Damage(at, reason, source.size - at)
        previous = (offset, position)
    if headers is not None and count and headers.find(previous[0]) is None:
        yield Damage(source.size, f"the segment ends before offset {previous[0]}", 0)
    yield from _end(source, count, segment)


def time_index_findings(
    source: Source, base_offset: int, segment: Source | None
) -> Iterator[Finding]:
    """Yield the entries of a `.timeindex` file."""
    headers = None if segment is None else _Headers(segment)
    timestamp, offset = -1, base_offset
    count, has_room = 0, False
    for finding in _entries(source, _TIME_ENTRY):
        if isinstance(finding, Note | Damage):
            has_room = has_room or isinstance(finding, Note)
            yield finding
            continue
        at, fields = finding
        reason = _rising("timestamp", timestamp, fields[0])
        if base_offset + fields[1] < offset:
            reason = reason or f"offset {base_offset + fields[1]} after {offset}"
        timestamp, offset = fields[0], base_offset + fields[1]
        count += 1
        yield Row("time index entry", {"timestamp": timestamp, "offset": offset})
        if reason is None and headers is not None:
            reason = headers.check_timestamp(timestamp, offset)
            headers = headers.usable()
        if reason is not None:
            yield Damage(at, reason, source.size - at)
    if headers is not None and not has_room:
        yield from _covering(source, headers, timestamp)
    yield from _end(source, count, segment)


def txn_index_findings(source: Source, base_offset: int) -> Iterator[Finding]:
    """Yield the aborted transactions of a `.txnindex` file."""
    last_offset = base_offset - 1
    count = 0
    for finding in _entries(source, _ABORTED_TXN):
        if isinstance(finding, Note | Damage):
            yield finding
            continue
        at, (version, producer_id, first, last, stable) = finding
        count += 1
        yield Row(
            "aborted transaction",
            {
                "version": version,
                "producerId": producer_id,
                "firstOffset": first,
                "lastOffset": last,
                "lastStableOffset": stable,
            },
        )
        reason = _rising("last offset", last_offset, last)
        if version != 0:
            reason = f"version {version} is unknown"
        elif first > last:
            reason = f"the first offset {first} is after the last, {last}"
        if reason is not None:
            yield Damage(at, reason, source.size - at)
        last_offset = last
    yield Summary({"entries": count, "bytes": source.size})


class _Headers:
    """The batch headers of a segment, read once in order."""

    def __init__(self, segment: Source) -> None:
        self._segment = segment
        self._position = 0
        self._entry: Batch | Message | None = None
        self._first_offset = 0
        self._failure: str | None = None
        self.max_timestamp = -1
        self.max_before = -1

    def check_position(self, offset: int, position: int, previous_offset: int) -> str | None:
        """Return what is wrong with an offset index entry, or None."""
        while self._entry is None or self._entry.position < position:
            if not self._advance():
                return self._failure or f"position {position} is after the end of the segment"
        if self._entry.position != position:
            return f"no batch begins at position {position}"
        first = self._first_offset
        if first > offset:
            return f"the entry for offset {offset} points to a batch that begins at {first}"
        if first <= previous_offset:
            return f"this batch contains {previous_offset}, the offset of the previous entry"
        return None

    def check_timestamp(self, timestamp: int, offset: int) -> str | None:
        """Return what is wrong with a time index entry, or None."""
        entry = self.find(offset)
        if entry is None:
            return self._failure or f"the segment ends before offset {offset}"
        if self._first_offset > offset:
            return f"no batch contains offset {offset}"
        if self.max_before > timestamp:
            return f"the larger timestamp {self.max_before} comes before offset {offset}"
        if entry.max_timestamp != timestamp:
            return f"the batch of offset {offset} has timestamp {entry.max_timestamp}"
        return None

    def usable(self) -> _Headers | None:
        """Return self, or None if a header of the segment could not be read."""
        return self if self._failure is None else None

    def find(self, offset: int) -> Batch | Message | None:
        """Return the first batch that ends at or after `offset`. This only moves forward."""
        while self._entry is None or self._entry.last_offset < offset:
            if not self._advance():
                return None
        return self._entry

    def to_end(self) -> bool:
        """Read the remaining headers. Return True if all could be read."""
        while self._advance():
            pass
        return self._failure is None

    def _advance(self) -> bool:
        if self._failure is not None or self._position >= self._segment.size:
            return False
        try:
            entry = header_at(self._segment, self._position, _HEADER_READ_BYTES)
        except CorruptBatch as error:
            self._failure = f"entries from here on are not checked: the segment is damaged {error}"
            return False
        if isinstance(entry, Batch):
            self._first_offset = entry.base_offset
        else:
            # The wrapper of compressed messages does not name its first offset. Assume that it
            # follows the previous entry.
            self._first_offset = self._entry.next_offset if self._entry is not None else 0
        self.max_before = self.max_timestamp
        self.max_timestamp = max(self.max_timestamp, entry.max_timestamp)
        self._entry = entry
        self._position = entry.end
        return True


def _entries(source: Source, layout: Struct) -> Iterator[_Entry | Note | Damage]:
    """Yield the entries of an index up to the zeros at its end, and Damage for a partial entry."""
    whole = source.size - source.size % layout.size
    step = CHUNK_BYTES - CHUNK_BYTES % layout.size
    zero = bytes(layout.size)
    for start in range(0, whole, step):
        chunk = source.read(start, min(step, whole - start))
        for at in range(0, len(chunk), layout.size):
            position = start + at
            if chunk[at : at + layout.size] == zero and _is_zero_from(source, position):
                yield Note(
                    f"preallocated space for {(whole - position) // layout.size} more entries"
                )
                return
            yield position, layout.unpack_from(chunk, at)
    if whole < source.size:
        left = source.size - whole
        yield Damage(
            whole, f"{left} bytes at the end are less than an entry of {layout.size} bytes", left
        )


def _is_zero_from(source: Source, start: int) -> bool:
    for position in range(start, source.size, CHUNK_BYTES):
        chunk = source.read(position, CHUNK_BYTES)
        if chunk != bytes(len(chunk)):
            return False
    return True


def _rising(what: str, previous: int, number: int) -> str | None:
    return None if number > previous else f"{what} {number} after {previous}"


def _covering(source: Source, headers: _Headers, timestamp: int) -> Iterator[Finding]:
    if headers.to_end() and headers.max_timestamp > timestamp:
        reason = f"the segment's largest timestamp is {headers.max_timestamp}, not {timestamp}"
        if source.has_successor():
            yield Damage(source.size, reason, 0)
        else:
            yield Note(f"{reason}: this is the active segment")


def _end(source: Source, count: int, segment: Source | None) -> Iterator[Finding]:
    if segment is None:
        yield Note("there is no segment for this index: entries are not checked")
    yield Summary({"entries": count, "bytes": source.size})
