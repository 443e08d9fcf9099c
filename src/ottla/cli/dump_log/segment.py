"""Segment files: reads every batch, checks its CRC, and reads its records on request.

A broker truncates a segment at the first bytes that are not a batch. This reader continues at
the next intact batch, if there is one, to show what could be recovered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.cli.dump_log.findings import Damage, Fields, Finding, Note, Row, Summary
from ottla.cli.dump_log.records import Decoder, record_rows
from ottla.cli.dump_log.source import CHUNK_BYTES, Source
from ottla.records.batch import HEADER_SIZE, MAGIC_OFFSET, Batch, CorruptBatch
from ottla.records.compression import codec_name
from ottla.records.legacy import Message, parse_any

TIMESTAMP_TYPES: Final = {None: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_UNUSED_ATTRIBUTES: Final = ~0x7F
_DEEP_LIMIT: Final = 256 * 1024 * 1024


def segment_findings(
    source: Source, base_offset: int | None, decode: Decoder | None
) -> Iterator[Finding]:
    """Yield the batches of a segment, each followed by its records if there is a decoder."""
    walk = _Walk(source, base_offset)
    position = 0
    while position < source.size:
        try:
            entry = header_at(source, position)
        except CorruptBatch as error:
            damage = walk.unreadable(position, error.reason)
            yield damage
            if damage.resumes_at is None:
                break
            position = damage.resumes_at
            continue
        yield from walk.entry(entry)
        if decode is not None:
            yield from walk.records(entry, decode)
        position = entry.end
    yield walk.summary()


def header_at(source: Source, position: int, ahead: int = CHUNK_BYTES) -> Batch | Message:
    """Return the header at a position of a segment. Raise CorruptBatch if no batch is there."""
    chunk, at = source.chunk_at(position, HEADER_SIZE, ahead)
    head = chunk[at : at + HEADER_SIZE]
    if len(head) > MAGIC_OFFSET and not any(head):
        raise CorruptBatch(position, "only zero bytes: preallocated, or lost in a crash")
    try:
        entry = parse_any(chunk, at, len(chunk))
    except CorruptBatch as error:
        raise CorruptBatch(position, error.reason) from None
    left = source.size - position
    if entry is None:
        raise CorruptBatch(
            position, f"the header of a batch is truncated: only {left} bytes are left"
        )
    entry = entry._replace(position=position)
    if entry.size > left:
        raise CorruptBatch(
            position, f"a batch of {entry.size} bytes is truncated: only {left} bytes are left"
        )
    return entry


class _Walk:
    """The state of reading a segment."""

    def __init__(self, source: Source, base_offset: int | None) -> None:
        self._source = source
        self._base_offset = base_offset
        self._next_offset = base_offset or 0
        self._first_offset: int | None = None
        self._leader_epoch = -1
        self._is_sound = True
        self._batches = 0
        self._records = 0

    def entry(self, entry: Batch | Message) -> Iterator[Finding]:
        """Yield the row of a batch or message, and its damage."""
        computed = self._source.crc_of(entry)
        self._is_sound = computed == entry.crc
        self._batches += 1
        yield Row("batch", _fields(entry, self._is_sound))
        if self._is_sound:
            for reason in self._contradictions(entry):
                yield self._damage(entry.position, reason)
            self._follow(entry)
        else:
            reason = f"the stored CRC is {entry.crc}, the computed CRC is {computed}"
            yield self._damage(entry.position, reason)

    def records(self, entry: Batch | Message, decode: Decoder) -> Iterator[Finding]:
        """Yield the records of a batch, or Damage if they cannot be read."""
        if not self._is_sound:
            return
        if entry.size > _DEEP_LIMIT:
            yield Note(f"a batch of {entry.size} bytes is too large to decode")
            return
        try:
            for row in record_rows(self._source.read(entry.position, entry.size), entry, decode):
                self._records += 1
                yield row
        except CorruptBatch as error:
            yield self._damage(entry.position, f"records: {error.reason}")

    def unreadable(self, position: int, reason: str) -> Damage:
        """Return the damage for bytes that are not a batch, with the position of the next batch."""
        return self._damage(
            position, reason, find_intact(self._source, position + 1, self._next_offset)
        )

    def summary(self) -> Summary:
        """Return the totals of the segment."""
        fields: Fields = {"batches": self._batches}
        if self._records:
            fields["records"] = self._records
        fields["firstOffset"] = self._first_offset
        fields["nextOffset"] = None if self._first_offset is None else self._next_offset
        fields["bytes"] = self._source.size
        return Summary(fields)

    def _contradictions(self, entry: Batch | Message) -> Iterator[str]:
        first = entry.base_offset if isinstance(entry, Batch) else entry.last_offset
        if first < self._next_offset:
            yield f"offset {first} should be {self._next_offset} or more"
        if self._base_offset is not None and (
            entry.last_offset - self._base_offset > _MAX_RELATIVE_OFFSET
        ):
            yield f"offset {entry.last_offset} is too far from the base offset {self._base_offset}"
        if isinstance(entry, Batch):
            delta, count = entry.last_offset_delta, entry.record_count
            if delta < 0 or not 0 <= count <= delta + 1:
                yield f"{count} records with a last offset delta of {delta}"
            if 0 <= entry.partition_leader_epoch < self._leader_epoch:
                yield f"leader epoch {entry.partition_leader_epoch} after {self._leader_epoch}"

    def _follow(self, entry: Batch | Message) -> None:
        if self._first_offset is None:
            self._first_offset = (
                entry.base_offset if isinstance(entry, Batch) else entry.last_offset
            )
        self._next_offset = max(self._next_offset, entry.next_offset)
        if isinstance(entry, Batch):
            self._leader_epoch = max(self._leader_epoch, entry.partition_leader_epoch)

    def _damage(self, position: int, reason: str, resumes_at: int | None = None) -> Damage:
        return Damage(position, reason, self._source.size - position, resumes_at)


def find_intact(source: Source, start: int, least_offset: int) -> int | None:
    """Return the first position at or after `start` of a v2 batch with a valid CRC, or None."""
    position = start
    while position + HEADER_SIZE <= source.size:
        chunk = source.read(position, CHUNK_BYTES + HEADER_SIZE)
        at = chunk.find(b"\x02", MAGIC_OFFSET)
        while 0 <= at <= len(chunk) - HEADER_SIZE + MAGIC_OFFSET:
            begin = at - MAGIC_OFFSET
            if _is_intact(source, chunk, begin, position + begin, least_offset):
                return position + begin
            at = chunk.find(b"\x02", at + 1)
        position += len(chunk) - HEADER_SIZE + 1
    return None


def _is_intact(source: Source, chunk: bytes, at: int, position: int, least_offset: int) -> bool:
    try:
        batch = parse_any(chunk, at, len(chunk))
    except CorruptBatch:
        return False
    if not isinstance(batch, Batch) or batch.attributes & _UNUSED_ATTRIBUTES:
        return False
    batch = batch._replace(position=position)
    if batch.base_offset < least_offset or batch.last_offset_delta < 0 or batch.end > source.size:
        return False
    return source.crc_of(batch) == batch.crc


def _fields(entry: Batch | Message, is_valid: bool) -> Fields:
    fields: Fields = {}
    if isinstance(entry, Batch):
        fields = {
            "baseOffset": entry.base_offset,
            "lastOffset": entry.last_offset,
            "count": entry.record_count,
            "baseSequence": entry.base_sequence,
            "lastSequence": entry.last_sequence,
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "partitionLeaderEpoch": entry.partition_leader_epoch,
            "isTransactional": entry.is_transactional,
            "isControl": entry.is_control,
            "deleteHorizonMs": entry.delete_horizon_ms,
        }
    else:
        fields = {"lastOffset": entry.last_offset}
    return fields | {
        "position": entry.position,
        "timestampType": TIMESTAMP_TYPES[entry.timestamp_type],
        "maxTimestamp": entry.max_timestamp,
        "size": entry.size,
        "magic": entry.magic,
        "compresscodec": codec_name(entry.compression),
        "crc": entry.crc,
        "isvalid": is_valid,
    }
