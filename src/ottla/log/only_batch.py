"""Find the one batch in the records of a Produce request's partition.

The rules are those of Kafka's `ProduceRequest.validateRecords`, and of the input stream below it: a
batch that is cut off at the end is no batch. So bytes that follow the first batch are refused
only if they are another batch, or cannot be the beginning of one. Otherwise they are left out.
"""

from __future__ import annotations

from typing import Final

from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import (
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    Batch,
    parse_header,
)

_MIN_LENGTH: Final = 14  # of a message of magic 0, without key and value


def only_batch(buffer: bytearray, start: int, end: int) -> Batch:
    """Return the header of the one v2 batch in [start, end); raise ApiError."""
    batch_end = _batch_end(buffer, start, end)
    if batch_end is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "There is no whole batch in the request")
    magic = buffer[start + MAGIC_OFFSET]
    if magic != MAGIC_V2:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Batches must have magic {MAGIC_V2}, but this one has {magic}",
        )
    if batch_end != end and _batch_end(buffer, batch_end, end) is not None:
        raise ApiError(ErrorCode.INVALID_RECORD, "A request has one batch for each partition")
    if buffer[start : start + LENGTH_OFFSET] != bytes(LENGTH_OFFSET):
        raise ApiError(ErrorCode.INVALID_RECORD, "The base offset of a batch must be 0")
    if batch_end - start < HEADER_SIZE:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "The batch is shorter than its header")
    return parse_header(buffer, start)


def _batch_end(buffer: bytearray, start: int, end: int) -> int | None:
    """Return where the batch at `start` ends, None if it is not there as a whole."""
    if end - start < LOG_OVERHEAD:
        return None
    length = int.from_bytes(
        buffer[start + LENGTH_OFFSET : start + LOG_OVERHEAD], "big", signed=True
    )
    if length < _MIN_LENGTH:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"A batch cannot have {length} bytes")
    if end - start <= MAGIC_OFFSET:
        return None
    magic = buffer[start + MAGIC_OFFSET]
    if magic > MAGIC_V2:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Unknown magic {magic}")
    batch_end = start + LOG_OVERHEAD + length
    return batch_end if batch_end <= end else None
