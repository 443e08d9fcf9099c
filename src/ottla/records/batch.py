"""The header of a v2 record batch: its layout, and iterating from batch to batch.

Everything works on (buffer, start, end) and reads headers only, so the work is per batch,
never per record, and no bytes are copied. A CRC covers everything from the
attributes to the end of the batch; base offset, length, leader epoch and magic are
outside it, which lets a broker assign offsets without touching the CRC (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.ports import Buffer
from ottla.records.checksum import crc32c

BASE_OFFSET_OFFSET: Final = 0
LENGTH_OFFSET: Final = 8
LOG_OVERHEAD: Final = 12
LEADER_EPOCH_OFFSET: Final = 12
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
LAST_OFFSET_DELTA_OFFSET: Final = 23
BASE_TIMESTAMP_OFFSET: Final = 27
MAX_TIMESTAMP_OFFSET: Final = 35
PRODUCER_ID_OFFSET: Final = 43
PRODUCER_EPOCH_OFFSET: Final = 51
BASE_SEQUENCE_OFFSET: Final = 53
RECORD_COUNT_OFFSET: Final = 57
HEADER_SIZE: Final = 61

MAGIC_V2: Final = 2

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

HEADER: Final = Struct(">qiibIhiqqqhii")
"""base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta,
base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count"""

assert HEADER.size == HEADER_SIZE

_CRC: Final = Struct(">I")
_MIN_BATCH_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_unpack_header: Final = HEADER.unpack_from
_new: Final = tuple.__new__  # what a NamedTuple's constructor does, in half the time


class CorruptBatch(ValueError):
    """Bytes that are not a well-formed batch: where they begin, and what is wrong."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"at position {self.position}: {self.reason}"


class TooMuchData(CorruptBatch):
    """Compressed records that take more bytes than allowed."""


class Batch(NamedTuple):
    """The header of one batch, and its position in the buffer."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, base offset and length included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def end(self) -> int:
        """Position just after the batch."""
        return self.position + self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number: see `compression.CODECS`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of this batch may be removed; stored in place of the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record: sequences wrap to 0 after 2**31 - 1; -1 for none."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0


def parse_header(buffer: Buffer, position: int) -> Batch:
    """Return the header at `position`, unchecked; the buffer must hold HEADER_SIZE bytes there."""
    return _new(Batch, (*_unpack_header(buffer, position), position))


def scan(buffer: Buffer, start: int, end: int) -> Iterator[Batch]:
    """Yield the whole batches in [start, end), stopping before an incomplete one.

    Raise CorruptBatch at a length or magic that no v2 batch has. The CRC is not checked.
    """
    position = start
    while end - position >= HEADER_SIZE:
        fields = _unpack_header(buffer, position)
        length = fields[1]
        if fields[3] != MAGIC_V2:
            raise CorruptBatch(position, f"magic {fields[3]} is not {MAGIC_V2}")
        if length < _MIN_BATCH_LENGTH:
            raise CorruptBatch(position, f"batch length {length} is below {_MIN_BATCH_LENGTH}")
        following = position + LOG_OVERHEAD + length
        if following > end:
            return
        yield _new(Batch, (*fields, position))
        position = following


def crc_of(view: memoryview, start: int, end: int) -> int:
    """Compute the CRC-32C of the batch at [start, end), over all that its CRC field covers."""
    return crc32c(view[start + ATTRIBUTES_OFFSET : end])


def seal(buffer: bytearray | memoryview, start: int, end: int) -> None:
    """Compute the CRC of the batch at [start, end) and store it."""
    with memoryview(buffer) as view:
        _CRC.pack_into(buffer, start + CRC_OFFSET, crc_of(view, start, end))
