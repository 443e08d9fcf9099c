"""Messages of magic 0 and 1 for the decoder, one by one: old logs are read, not read fast."""

from __future__ import annotations

from ottla.records.batch import LOG_APPEND_TIME, Batch, CorruptBatch
from ottla.records.legacy import (
    Message,
    crc_of_message,
    parse_any,
    records_of_message,
)
from ottla.records.record import Record, build_batch


def read_message(
    records: memoryview, position: int, check_crc: bool
) -> tuple[Message, list[Record]]:
    """The whole message at `position` and what is in it; CorruptBatch when it is damaged."""
    message = parse_any(records, position, len(records))
    if message is None or isinstance(message, Batch) or message.end > len(records):
        raise CorruptBatch(position, "there is no whole message")
    if check_crc and crc_of_message(records, message) != message.crc:
        raise CorruptBatch(position, "its checksum is wrong")
    return message, records_of_message(records, message)


def as_batch(record: Record, timestamp_type: int | None) -> bytearray:
    """A batch of today's format with this one record, at the same offset."""
    return build_batch(
        [(record.key, record.value, record.timestamp, record.headers)],
        base_offset=record.offset,
        timestamp_type=1 if timestamp_type == LOG_APPEND_TIME else 0,
    )
