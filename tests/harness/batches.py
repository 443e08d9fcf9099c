"""Record batches for raw requests, built and read by kafka-python, not by Ottla."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_CRC_POSITION = 17
_CRC_FROM = 21


class RawRecord(NamedTuple):
    """One record of a fetched batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def now_ms() -> int:
    """Return the wall clock, as a producer stamps its records."""
    return int(time.time() * 1000)


def batch_of(
    values: Iterable[bytes | None],
    *,
    codec: str = "none",
    timestamp_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    key: bytes | None = b"k",
    transactional: bool = False,
) -> bytes:
    """Return a v2 batch of these values as a producer would send it (base offset 0)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 30,
    )
    stamp = now_ms() if timestamp_ms is None else timestamp_ms
    for number, value in enumerate(values):
        builder.append(number, stamp, key, value, [])
    batch = bytes(builder.build())
    packed = batch[22] & 7 == CODECS[codec]
    assert packed, "kafka-python leaves a batch unpacked that packing would not make smaller"
    return batch


def reseal(batch: bytearray) -> bytes:
    """Return the batch with a CRC that fits its (changed) content."""
    struct.pack_into(">I", batch, _CRC_POSITION, crc32c.crc32c(bytes(batch[_CRC_FROM:])))
    return bytes(batch)


def whole_batches(records: bytes | None) -> Iterator[DefaultRecordBatch]:
    """Yield the complete batches of a fetched record set; a cut one at its end is left out."""
    data = records or b""
    position = 0
    while position + 12 <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        end = position + 12 + length
        if end > len(data):
            return
        batch = DefaultRecordBatch(data[position:end])
        assert batch.validate_crc(), f"bad CRC in the batch at offset {batch.base_offset}"
        yield batch
        position = end


def records_of(records: bytes | None) -> list[RawRecord]:
    """Return all records of the complete batches of a fetched record set."""
    return [
        RawRecord(each.offset, each.timestamp, each.key, each.value)
        for batch in whole_batches(records)
        for each in batch
    ]
