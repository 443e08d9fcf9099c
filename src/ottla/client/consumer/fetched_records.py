"""Decodes and checks the records of a fetch response.

A response may begin with records before the requested offset, because brokers send whole
batches. It may contain control batches, which applications do not see, and it may end in the
middle of a batch. Brokers up to Kafka 3 may also send the message formats from before 0.11.

With read_committed the response names the aborted transactions in it: from the first offset of one
to its marker, the records of its producer are left out (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.errors import ClientError
from ottla.ports import Buffer
from ottla.records.batch import Batch, CorruptBatch, crc_of
from ottla.records.control import ControlType, control_type
from ottla.records.legacy import Message, crc_of_message, records_of_message, scan_any
from ottla.records.record import Record, records_of
from ottla.wire.messages.fetch import AbortedTransaction


class Fetched(NamedTuple):
    """Records of one partition, and the next offset to fetch."""

    partition: int
    records: list[Record]
    next_offset: int


def read_fetched(
    data: Buffer,
    topic: str,
    partition: int,
    offset: int,
    aborted: Iterable[AbortedTransaction] = (),
) -> Fetched:
    """Return the records at and after `offset`, without those of aborted transactions.

    Raise ClientError if a batch is damaged.
    """
    records: list[Record] = []
    next_offset = offset
    filter = _AbortedFilter(aborted)
    with memoryview(data) as view:
        try:
            for entry in scan_any(view, 0, len(view)):
                if not filter.hides(view, entry) and entry.next_offset > offset:
                    records += [r for r in _records(view, entry) if r.offset >= offset]
                next_offset = max(next_offset, entry.next_offset)
        except CorruptBatch as error:
            raise ClientError(
                f"{topic}-{partition} has a damaged batch at or after offset {next_offset}"
                f" ({error.reason}); to skip it, give --partition {partition} and a later --offset"
            ) from None
    return Fetched(partition, records, next_offset)


class _AbortedFilter:
    """Knows which producers' transactions are aborted, from batch to batch."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._begins = sorted((each.first_offset, each.producer_id) for each in aborted)
        self._producers: set[int] = set()

    def hides(self, view: memoryview, entry: Batch | Message) -> bool:
        """Return True if a batch is part of an aborted transaction."""
        if isinstance(entry, Message) or not entry.is_transactional:
            return False
        while self._begins and self._begins[0][0] <= entry.last_offset:
            self._producers.add(self._begins.pop(0)[1])
        if entry.producer_id not in self._producers:
            return False
        if entry.is_control and _is_abort(view, entry):
            self._producers.discard(entry.producer_id)
        return True


def _is_abort(view: memoryview, batch: Batch) -> bool:
    record = next(iter(records_of(view[batch.position : batch.end])), None)
    return record is not None and control_type(record.key) is ControlType.ABORT


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
