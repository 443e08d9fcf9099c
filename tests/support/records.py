"""Record batches for tests: what the broker's check of their records says."""

from __future__ import annotations

from ottla.model.errors import ApiError
from ottla.records.batch import HEADER_SIZE, MAGIC_V2, CorruptBatch, parse_header
from ottla.records.validation import Validation

_ROOMY = 1 << 30


def null_keys(data: bytes | bytearray, start: int, end: int) -> list[int]:
    """Return the records without a key of the batch in [start, end); raise CorruptBatch."""
    if end - start < HEADER_SIZE:
        raise CorruptBatch(start, "shorter than a header")
    batch = parse_header(data, start)
    if batch.magic != MAGIC_V2 or not HEADER_SIZE <= batch.size <= end - start:
        raise CorruptBatch(start, "no batch")
    if not batch.record_count and batch.size == HEADER_SIZE:
        return []  # emptied by compaction: no client sends this
    try:
        Validation(True, None, None, _ROOMY).run(data, start)
    except ApiError as error:
        if error.message != "Records of a compacted topic must have a key":
            raise CorruptBatch(start, error.message or "") from None
        return list(error.bad_records)
    return []
