"""Reads messages of magic 0 and 1 one by one. Old logs can be read, but not fast."""

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
    """Return the message at `position` and its records. Raise CorruptBatch if it is damaged."""
    message = parse_any(records, position, len(records))
    if message is None or isinstance(message, Batch) or message.end > len(records):
        raise CorruptBatch(position, "the message is incomplete")
    if check_crc and crc_of_message(records, message) != message.crc:
        raise CorruptBatch(position, "its checksum is wrong")
    return message, records_of_message(records, message)


def as_batch(record: Record, timestamp_type: int | None) -> bytearray:
    """Return a batch of magic 2 with this one record, at the same offset."""
    return build_batch(
        [(record.key, record.value, record.timestamp, record.headers)],
        base_offset=record.offset,
        timestamp_type=1 if timestamp_type == LOG_APPEND_TIME else 0,
    )
