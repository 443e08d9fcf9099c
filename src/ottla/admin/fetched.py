"""The records in the bytes of a fetch response, checked.

A response may begin with records before the offset asked for (a batch is sent whole), hold
control batches, which are not for readers, and end in the middle of a batch.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.admin.errors import AdminError
from ottla.ports import Buffer
from ottla.records.batch import (
    Batch,
    CorruptBatch,
    crc_of,
    scan,
)
from ottla.records.record import Record, records_of


class Fetched(NamedTuple):
    """Records of one partition, and the offset to go on from."""

    partition: int
    records: list[Record]
    next_offset: int


def read_fetched(data: Buffer, topic: str, partition: int, offset: int) -> Fetched:
    """The records from `offset` on; AdminError when a batch is damaged."""
    records: list[Record] = []
    next_offset = offset
    with memoryview(data) as view:
        try:
            for batch in scan(view, 0, len(view)):
                if not batch.is_control:
                    records += _records(view, batch, offset)
                next_offset = max(next_offset, batch.next_offset)
        except CorruptBatch as error:
            raise AdminError(
                f"{topic}-{partition} has a damaged batch at or after offset {next_offset}"
                f" ({error.reason}); start after it with --partition {partition} --offset"
            ) from None
    return Fetched(partition, records, next_offset)


def _records(view: memoryview, batch: Batch, offset: int) -> list[Record]:
    if batch.next_offset <= offset:
        return []
    if crc_of(view, batch.position, batch.end) != batch.crc:
        raise CorruptBatch(batch.position, "its checksum is wrong")
    records = records_of(view[batch.position : batch.end])
    return records if batch.base_offset >= offset else [r for r in records if r.offset >= offset]
