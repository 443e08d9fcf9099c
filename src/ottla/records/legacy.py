"""Message sets of magic 0 and 1, which Kafka wrote before 0.11: reading only.

A message set is a sequence of messages, each preceded by its offset and size. A compressed message
is a wrapper: its value is another message set, and its offset is that of the last message
in it. Inside a wrapper, magic 1 counts offsets from 0, magic 0 has them absolute (KIP-31).
Magic 1 adds a timestamp, and its type in the attributes (KIP-32).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ottla.ports import Buffer
from ottla.records.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    TIMESTAMP_TYPE_MASK,
    Batch,
    CorruptBatch,
    parse_header,
)
from ottla.records.compression import DECOMPRESSED_LIMIT, LZ4, decompress
from ottla.records.lz4_header import repair
from ottla.records.record import Record

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1

_HEADER: Final = Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_CRC_START: Final = 16
_MIN_SIZE: Final = {MAGIC_V0: 14, MAGIC_V1: 22, MAGIC_V2: HEADER_SIZE - LOG_OVERHEAD}


class Message(NamedTuple):
    """The fixed part of a message of magic 0 or 1; attributes have the names a Batch has."""

    last_offset: int
    message_size: int
    crc: int
    magic: int
    attributes: int
    max_timestamp: int
    position: int

    @property
    def size(self) -> int:
        """Bytes of the whole message, offset and size included."""
        return self.message_size + LOG_OVERHEAD

    @property
    def end(self) -> int:
        """Position just after the message."""
        return self.position + self.message_size + LOG_OVERHEAD

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int | None:
        """CREATE_TIME or LOG_APPEND_TIME; None for magic 0, which has no timestamps."""
        if self.magic == MAGIC_V0:
            return None
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME


def scan_any(buffer: Buffer, start: int, end: int) -> Iterator[Batch | Message]:
    """Yield the whole batches and messages of any magic in [start, end).

    Stop before an incomplete one. Raise CorruptBatch at a length or magic that none has.
    """
    position = start
    while (entry := parse_any(buffer, position, end)) is not None and entry.end <= end:
        yield entry
        position = entry.end


def parse_any(buffer: Buffer, position: int, end: int) -> Batch | Message | None:
    """Return the header of any magic at `position`, or None if it would pass `end`.

    Raise CorruptBatch at a length or magic that no batch or message has.
    """
    if end - position <= MAGIC_OFFSET:
        return None
    magic = buffer[position + MAGIC_OFFSET]
    length = _LENGTH.unpack_from(buffer, position + LENGTH_OFFSET)[0]
    if magic not in _MIN_SIZE:
        raise CorruptBatch(position, f"magic {magic} is not one of 0, 1 and 2")
    if length < _MIN_SIZE[magic]:
        raise CorruptBatch(position, f"length {length} is below {_MIN_SIZE[magic]}")
    if end - position < LOG_OVERHEAD + _MIN_SIZE[magic]:
        return None
    return parse_header(buffer, position) if magic == MAGIC_V2 else _parse(buffer, position, magic)


def crc_of_message(view: memoryview, message: Message) -> int:
    """Compute the CRC-32 over all that the message's CRC field covers."""
    return crc32(view[message.position + _CRC_START : message.end])


def records_of_message(
    buffer: Buffer, message: Message, limit: int = DECOMPRESSED_LIMIT
) -> list[Record]:
    """Return the record of a message, or those in a wrapper; raise CorruptBatch."""
    key, value = _fields(buffer, message)
    if not message.compression:
        return [Record(message.last_offset, message.max_timestamp, key, value, ())]
    if value is None:
        raise CorruptBatch(message.position, "a compressed message has no value")
    try:
        return _unwrap(message, _decompress(message, value, limit))
    except CorruptBatch as error:
        raise CorruptBatch(message.position, error.reason) from None


def _parse(buffer: Buffer, position: int, magic: int) -> Message:
    fields = _HEADER.unpack_from(buffer, position)
    timestamp = -1
    if magic == MAGIC_V1:
        (timestamp,) = _TIMESTAMP.unpack_from(buffer, position + _HEADER.size)
    return Message._make((*fields, timestamp, position))


def _fields(buffer: Buffer, message: Message) -> tuple[bytes | None, bytes | None]:
    position = message.position + _HEADER.size
    if message.magic == MAGIC_V1:
        position += _TIMESTAMP.size
    key, position = _field(buffer, position, message)
    value, position = _field(buffer, position, message)
    if position != message.end:
        raise CorruptBatch(message.position, f"{message.end - position} bytes follow the value")
    return key, value


def _field(buffer: Buffer, position: int, message: Message) -> tuple[bytes | None, int]:
    left = message.end - position - _LENGTH.size
    if left < 0:
        raise CorruptBatch(message.position, "the message ends inside a length")
    (length,) = _LENGTH.unpack_from(buffer, position)
    position += _LENGTH.size
    if length == -1:
        return None, position
    if not 0 <= length <= left:
        raise CorruptBatch(message.position, f"a field of {length} bytes with {left} left")
    return bytes(buffer[position : position + length]), position + length


def _decompress(message: Message, value: bytes, limit: int) -> Buffer:
    if message.magic == MAGIC_V0 and message.compression == LZ4:
        value = repair(value)
    return decompress(message.compression, value, limit)


def _unwrap(wrapper: Message, inner: Buffer) -> list[Record]:
    records = []
    end = 0
    for message in scan_any(inner, 0, len(inner)):
        if not isinstance(message, Message) or message.magic != wrapper.magic:
            raise CorruptBatch(0, f"magic {message.magic} inside a wrapper of {wrapper.magic}")
        if message.compression:
            raise CorruptBatch(0, "a wrapper inside a wrapper")
        end = message.end
        records += records_of_message(inner, message)
    if not records or end != len(inner):
        raise CorruptBatch(0, f"the wrapped messages take {end} bytes, not {len(inner)}")
    base = 0 if wrapper.magic == MAGIC_V0 else wrapper.last_offset - records[-1].offset
    append_time = wrapper.timestamp_type == LOG_APPEND_TIME
    return [
        record._replace(
            offset=base + record.offset,
            timestamp=wrapper.max_timestamp if append_time else record.timestamp,
        )
        for record in records
    ]
