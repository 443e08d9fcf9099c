"""The records inside a v2 batch: reading and building.

Reading trusts nothing: each length is checked against the bytes that are left before it is
used, offsets must rise within the batch, and the batch must hold exactly the records its
header counts. Damaged bytes raise CorruptBatch and nothing else. Brokers check the
records of clients (`structure`) and store batches without reading them.

A record is: length, attributes (1 byte), timestamp delta, offset delta, key, value,
headers; all numbers are zigzag varints, a length of -1 means null (KIP-98, KIP-82).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.model.steps import Steps
from ottla.ports import Buffer
from ottla.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Batch,
    CorruptBatch,
    parse_header,
    seal,
)
from ottla.records.varint import NULL, read_int, read_length, read_long

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
NewRecord: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]
"""key, value, timestamp, headers"""

_MIN_RECORD_BYTES: Final = 7  # seven numbers of one byte each
_MIN_HEADER_BYTES: Final = 2
_INT64: Final = 1 << 63
_RECORDS_A_STEP: Final = 64


class Record(NamedTuple):
    """One record with its absolute offset; header keys that are not UTF-8 survive as surrogates."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def records_of(batch_bytes: Buffer, limit: int | None = None) -> list[Record]:
    """Return the records of the batch at the start of `batch_bytes`; raise CorruptBatch.

    The caller checks the CRC; compressed records may take up to `limit` bytes (default: that of
    `compression`).
    """
    return list(iterate_records(batch_bytes, limit))


def iterate_records(batch_bytes: Buffer, limit: int | None = None) -> Iterator[Record]:
    """Yield what `records_of` returns, one after the other: for batches that may be very large."""
    batch, data = _open(batch_bytes, 0, len(batch_bytes), limit)
    try:
        yield from _read_records(batch, data)
    except IndexError:
        raise CorruptBatch(0, "a record passes the end of the batch") from None


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    timestamp_type: int = 0,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Build a batch of the records, with its CRC, at consecutive offsets from `base_offset`."""
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0][2]
    payload = bytearray()
    for delta, record in enumerate(records):
        _write_record(payload, delta, base_timestamp, record)
    attributes = (
        codec
        | (TIMESTAMP_TYPE_MASK if timestamp_type else 0)
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0)
    )
    batch = bytearray(HEADER_SIZE)
    batch += _compress(codec, payload, level) if codec else payload
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max(record[2] for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    seal(batch, 0, len(batch))
    return batch


def build_values_batch(values: Sequence[bytes], timestamp: int) -> Steps[bytearray]:
    """Build a batch of records without keys that have the same time, in steps."""
    batch = bytearray(HEADER_SIZE)
    for delta, value in enumerate(values):
        _write_record(batch, delta, timestamp, (None, value, timestamp, ()))
        if not delta % _RECORDS_A_STEP:
            yield
    size, count = len(batch) - LOG_OVERHEAD, len(values)
    HEADER.pack_into(
        batch, 0, 0, size, -1, MAGIC_V2, 0, 0, count - 1, timestamp, timestamp, -1, -1, -1, count
    )
    seal(batch, 0, len(batch))
    return batch


# The codecs are imported on first use: a broker that passes batches through never needs them.


def _compress(codec: int, data: Buffer, level: int | None) -> bytes:
    from ottla.records.compression import compress

    return compress(codec, data, level)


def _decompress(codec: int, data: Buffer, limit: int | None) -> bytes:
    from ottla.records.compression import DECOMPRESSED_LIMIT, decompress

    return bytes(decompress(codec, data, DECOMPRESSED_LIMIT if limit is None else limit))


def _open(buffer: Buffer, start: int, end: int, limit: int | None) -> tuple[Batch, bytes]:
    """Return the checked header at `start`, and the records' bytes, decompressed."""
    if end - start < HEADER_SIZE:
        raise CorruptBatch(start, f"{end - start} bytes are less than a batch header")
    batch = parse_header(buffer, start)
    if batch.magic != MAGIC_V2:
        raise CorruptBatch(start, f"magic {batch.magic} is not {MAGIC_V2}")
    if not HEADER_SIZE <= batch.size <= end - start:
        raise CorruptBatch(start, f"batch length {batch.batch_length} does not fit")
    with memoryview(buffer) as view:
        payload = view[start + HEADER_SIZE : batch.end]
        # A batch that compaction emptied keeps its codec, but there is nothing in that codec.
        if not batch.attributes & COMPRESSION_MASK or batch.record_count == len(payload) == 0:
            data = bytes(payload)
        else:
            try:
                data = _decompress(batch.compression, payload, limit)
            except CorruptBatch as error:
                raise type(error)(start, error.reason) from None
    if not 0 <= batch.record_count * _MIN_RECORD_BYTES <= len(data):
        raise CorruptBatch(start, f"{len(data)} bytes cannot hold {batch.record_count} records")
    return batch, data


def _read_records(batch: Batch, data: bytes) -> Iterator[Record]:
    position, end = 0, len(data)
    append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
    previous = -1
    for _ in range(batch.record_count):
        length, position = read_int(data, position)
        record_end = position + length
        if length < _MIN_RECORD_BYTES - 1 or record_end > end:
            raise CorruptBatch(0, f"record length {length} with {end - position} bytes left")
        timestamp_delta, position = read_long(data, position + 1)
        offset_delta, position = read_int(data, position)
        if not previous < offset_delta <= batch.last_offset_delta:
            raise CorruptBatch(0, f"offset delta {offset_delta} after {previous}")
        previous = offset_delta
        key, position = _bytes(data, position, record_end)
        value, position = _bytes(data, position, record_end)
        count, position = read_int(data, position)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if count:
            headers, position = _headers(data, position, record_end, count)
        if position != record_end:
            raise CorruptBatch(0, f"a record of {length} bytes is {position - record_end} off")
        timestamp = batch.base_timestamp + timestamp_delta
        if not -_INT64 <= timestamp < _INT64:
            raise CorruptBatch(0, f"timestamp {timestamp} takes more than 64 bits")
        offset = batch.base_offset + offset_delta
        if append_time is not None:
            timestamp = append_time
        yield Record(offset, timestamp, key, value, headers)
    if position != end:
        raise CorruptBatch(0, f"{end - position} bytes follow the last record")


def _headers(
    data: bytes, position: int, end: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if not 0 <= count * _MIN_HEADER_BYTES <= end - position:
        raise CorruptBatch(0, f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _bytes(data, position, end)
        if key is None:
            raise CorruptBatch(0, "a header has a null key")
        value, position = _bytes(data, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, start = read_length(data, position, end)
    if length == NULL:
        return None, start
    return data[start : start + length], start + length


def _write_record(out: bytearray, delta: int, base_timestamp: int, record: NewRecord) -> None:
    key, value, timestamp, headers = record
    body = bytearray(1)
    _write_varint(body, timestamp - base_timestamp)
    _write_varint(body, delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    _write_varint(body, len(headers))
    for name, content in headers:
        _write_bytes(body, name.encode("utf-8", "surrogateescape"))
        _write_bytes(body, content)
    _write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)
        return
    _write_varint(out, len(content))
    out += content


def _write_varint(out: bytearray, number: int) -> None:
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
