"""Decodes and checks the records of a fetch response.

A response may begin with records before the requested offset, because brokers send whole
batches. It may contain control batches, which applications do not see, and it may end in the
middle of a batch. Brokers up to Kafka 3 may also send the message formats from before 0.11.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.errors import ClientError
from ottla.ports import Buffer
from ottla.records.batch import Batch, CorruptBatch, crc_of
from ottla.records.legacy import Message, crc_of_message, records_of_message, scan_any
from ottla.records.record import Record, records_of


class Fetched(NamedTuple):
    """Records of one partition, and the next offset to fetch."""

    partition: int
    records: list[Record]
    next_offset: int


def read_fetched(data: Buffer, topic: str, partition: int, offset: int) -> Fetched:
    """Return the records at and after `offset`. Raise ClientError if a batch is damaged."""
    records: list[Record] = []
    next_offset = offset
    with memoryview(data) as view:
        try:
            for entry in scan_any(view, 0, len(view)):
                if entry.next_offset > offset:
                    records += [r for r in _records(view, entry) if r.offset >= offset]
                next_offset = max(next_offset, entry.next_offset)
        except CorruptBatch as error:
            raise ClientError(
                f"{topic}-{partition} has a damaged batch at or after offset {next_offset}"
                f" ({error.reason}); to skip it, give --partition {partition} and a later --offset"
            ) from None
    return Fetched(partition, records, next_offset)


def _records(view: memoryview, entry: Batch | Message) -> list[Record]:
    if isinstance(entry, Message):
        crc = crc_of_message(view, entry)
    else:
        crc = crc_of(view, entry.position, entry.end)
    if crc != entry.crc:
        raise CorruptBatch(entry.position, "its checksum is wrong")
    if isinstance(entry, Message):
        return records_of_message(view, entry)
    return [] if entry.is_control else records_of(view[entry.position : entry.end])
