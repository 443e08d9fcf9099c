"""Check the batches of a leader's Fetch response before a follower appends them.

The leader has given the batches their offsets and epochs, so they are taken as they are. What
the network or a disk may have damaged is checked: magic, length, CRC and the order of offsets.
Offsets may leave gaps, because compaction removes batches from the leader's log.
"""

from __future__ import annotations

from binascii import crc32
from typing import TypeAlias

from ottla.log.segment.batch_scan import header_at
from ottla.log.state.producer_replay import Marker, read_marker
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    CONTROL_MASK,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    Batch,
    CorruptBatch,
)
from ottla.records.checksum import crc32c

ReplicatedBatch: TypeAlias = tuple[Batch, Marker | None]
"""A whole batch, and the transaction marker in it if it is one."""


def check_replicated(
    view: memoryview, start: int, end: int, log_end_offset: int
) -> list[ReplicatedBatch]:
    """Return the whole batches in [start, end), without one that is cut off at the end.

    Raise ApiError(CORRUPT_MESSAGE) if one of them is damaged, or lies before the end of the
    log or of the batch before it.
    """
    found: list[ReplicatedBatch] = []
    position, next_offset, bounded = start, log_end_offset, view[:end]
    try:
        while position < end:
            batch = header_at(bounded, position, position)
            if batch is None:
                break
            batch_end = position + LOG_OVERHEAD + batch.batch_length
            if batch_end > end:
                break
            _check_crc(view, batch, batch_end)
            if batch.base_offset < next_offset:
                reason = f"offset {batch.base_offset} is below the expected {next_offset}"
                raise CorruptBatch(position, reason)
            is_marker = batch.producer_id >= 0 and batch.attributes & CONTROL_MASK
            marker = read_marker(view[position:batch_end]) if is_marker else None
            found.append((batch, marker))
            position = batch_end
            next_offset = batch.base_offset + batch.last_offset_delta + 1
    except CorruptBatch as error:
        message = f"The leader's batch at position {position - start}: {error.reason}"
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, message) from None
    return found


def _check_crc(view: memoryview, batch: Batch, end: int) -> None:
    if batch.magic == MAGIC_V2:
        computed = crc32c(view[batch.position + ATTRIBUTES_OFFSET : end])
    else:
        computed = crc32(view[batch.position + MAGIC_OFFSET : end])
    if computed != batch.crc:
        raise CorruptBatch(
            batch.position, f"CRC {batch.crc:#010x} is stored, {computed:#010x} computed"
        )
