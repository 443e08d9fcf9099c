"""Check the batches of a leader's Fetch response before a follower appends them.

The leader has given the batches their offsets and epochs, so they are taken as they are. What
the network or a disk may have damaged is checked: magic, length, CRC and the order of offsets.
Offsets may leave gaps, because compaction removes batches from the leader's log.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from ottla.log.segment.batch_scan import header_at
from ottla.log.state.producer_replay import Marker, read_marker
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import MAGIC_OFFSET, MAGIC_V2, Batch, CorruptBatch, crc_of


class ReplicatedBatch(NamedTuple):
    """A whole batch, and the transaction marker in it if it is one."""

    batch: Batch
    marker: Marker | None


def check_replicated(
    view: memoryview, start: int, end: int, log_end_offset: int
) -> list[ReplicatedBatch]:
    """Return the whole batches in [start, end), without one that is cut off at the end.

    Raises ApiError(CORRUPT_MESSAGE) if one of them is damaged, or lies before the end of the
    log or of the batch before it.
    """
    found: list[ReplicatedBatch] = []
    position, next_offset, bounded = start, log_end_offset, view[:end]
    try:
        while position < end:
            batch = header_at(bounded, position, position)
            if batch is None or batch.end > end:
                break
            _check_crc(view, batch)
            if batch.base_offset < next_offset:
                reason = f"offset {batch.base_offset} is below the expected {next_offset}"
                raise CorruptBatch(position, reason)
            is_marker = batch.producer_id >= 0 and batch.is_control
            marker = read_marker(view[position : batch.end]) if is_marker else None
            found.append(ReplicatedBatch(batch, marker))
            position, next_offset = batch.end, batch.next_offset
    except CorruptBatch as error:
        message = f"The leader's batch at position {position - start}: {error.reason}"
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, message) from None
    return found


def _check_crc(view: memoryview, batch: Batch) -> None:
    if batch.magic == MAGIC_V2:
        computed = crc_of(view, batch.position, batch.end)
    else:
        computed = crc32(view[batch.position + MAGIC_OFFSET : batch.end])
    if computed != batch.crc:
        raise CorruptBatch(
            batch.position, f"CRC {batch.crc:#010x} is stored, {computed:#010x} computed"
        )
