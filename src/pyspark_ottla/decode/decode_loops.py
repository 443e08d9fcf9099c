"""Compiled loops that decode: over the batches of a fetched buffer, and over their records.

The bytes are not trusted. Every position, length and count is checked against the end of the
data before it is used. The loops allocate nothing. They write into arrays of known capacity,
stop when one is full, and can be called again. They raise nothing: they return a status, and
`damage` has the text for each bad one.

The formats are those of `ottla.records.batch` and `ottla.records.record` (KIP-98, KIP-82).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_ottla.jit import Bytes, compiled, copy, inlined

Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Blobs: TypeAlias = tuple[Ints, Bytes, Bytes]
"""Byte strings: a 0 and the end of each; all bytes; a bit for each that is set if not null."""

Numbers: TypeAlias = tuple[Longs, Longs, Ints]
"""Offsets, timestamps in microseconds, timestamp types."""

Headers: TypeAlias = tuple[Ints, Bytes, Blobs, Blobs]
"""The end of each record's headers; a bit for each record, set if it has headers; keys; values."""

Record: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]
"""Status, end, position of the headers, timestamp delta, offset delta, position and length of the
key (-1 for null), position and length of the value, number of headers."""

# The status that a loop returns.
DONE: Final = 0
FULL: Final = 1  # the table or an output array is full: call again
REACHED: Final = 2  # the end of the wanted offsets is reached
LEGACY: Final = 3  # there is a message of magic 0 or 1 at the position
BAD_LENGTH: Final = 10
BAD_MAGIC: Final = 11
BAD_COUNT: Final = 12
BAD_LAST_OFFSET: Final = 13
BAD_VARINT: Final = 20
BAD_RECORD_LENGTH: Final = 21
BAD_OFFSET: Final = 22
BAD_FIELD: Final = 23
BAD_HEADERS: Final = 24
BAD_RECORD_END: Final = 25
BAD_BATCH_END: Final = 26
BAD_TIMESTAMP: Final = 27

# Columns of the table of batches.
POSITION: Final = 0
END: Final = 1
BASE_OFFSET: Final = 2
LAST_OFFSET: Final = 3
ATTRIBUTES: Final = 4
BASE_TIMESTAMP: Final = 5
MAX_TIMESTAMP: Final = 6
PRODUCER_ID: Final = 7
RECORDS: Final = 8
CRC: Final = 9
DATA_START: Final = 10
DATA_END: Final = 11
TABLE_COLUMNS: Final = 12

# The cursor: where decoding continues inside the batches.
BATCH: Final = 0
RECORD: Final = 1
LEFT: Final = 2  # records of the batch that are not read yet; -1 before the first
PREVIOUS: Final = 3  # offset delta of the last record
CURSOR_SIZE: Final = 4

# How much of the output arrays is used.
ROWS: Final = 0
HEADERS: Final = 1
NULL_KEYS: Final = 2
NULL_VALUES: Final = 3
NULL_HEADERS: Final = 4
NULL_HEADER_VALUES: Final = 5
NOT_ASCII: Final = 6  # header keys with bytes above 0x7f
NEEDED: Final = 7  # bytes of the record that did not fit
ROW_CAPACITY: Final = 8
USED_SIZE: Final = 9

# Bits for the wanted columns.
WANT_KEY: Final = 1
WANT_VALUE: Final = 2
WANT_OFFSET: Final = 4
WANT_TIMESTAMP: Final = 8
WANT_TIMESTAMP_TYPE: Final = 16
WANT_HEADERS: Final = 32

_HEADER: Final = 61
_OVERHEAD: Final = 12
_MIN_LENGTH: Final = 49
_MIN_LEGACY_LENGTH: Final = 14
LEAST_BATCH: Final = _OVERHEAD + _MIN_LEGACY_LENGTH  # fewer bytes are never checked
_MIN_RECORD: Final = 7
_LARGEST: Final = 0x7FFFFFFFFFFFFFFF
_MAX_MILLIS: Final = _LARGEST // 1000
_TIMESTAMP_TYPE: Final = 0x08


@inlined
def _int32(data: Bytes, at: int) -> int:
    number = (
        (np.int64(data[at]) << 24)
        | (np.int64(data[at + 1]) << 16)
        | (np.int64(data[at + 2]) << 8)
        | np.int64(data[at + 3])
    )
    return int(number - ((number & 0x80000000) << 1))


@inlined
def _int64(data: Bytes, at: int) -> int:
    return (_int32(data, at) << 32) | (_int32(data, at + 4) & 0xFFFFFFFF)


@compiled("Tuple((int64, int64, int64))(uint8[::1], int64, int64)")
def walk(data: Bytes, start: int, end: int) -> tuple[int, int, int]:
    """Find the whole batches, of any magic.

    Return (status, position after the last one, offset after the last one or -1).
    """
    position = start
    next_offset = -1
    while end - position >= LEAST_BATCH:
        length = _int32(data, position + 8)
        magic = data[position + 16]
        if magic > 2:
            return BAD_MAGIC, position, next_offset
        if length < (_MIN_LENGTH if magic == 2 else _MIN_LEGACY_LENGTH):
            return BAD_LENGTH, position, next_offset
        if length > end - position - _OVERHEAD:
            break
        base = _int64(data, position)
        delta = _int32(data, position + 23) if magic == 2 else 0
        if base < 0 or delta < 0 or base > _LARGEST - delta - 1:
            return BAD_LAST_OFFSET, position, next_offset
        next_offset = max(next_offset, base + delta + 1)
        position += _OVERHEAD + length
    return DONE, position, next_offset


@compiled("Tuple((int64, int64, int64))(uint8[::1], int64, int64, int64, int64, int64[:, ::1])")
def scan(
    data: Bytes, start: int, end: int, low: int, high: int, table: Longs
) -> tuple[int, int, int]:
    """Fill the table with the batches that have offsets in [low, high).

    Return (status, position to continue from, rows of the table). Stop before an incomplete
    batch. The offsets of a batch are checked, its record count is not.
    """
    position = start
    count = 0
    while end - position >= LEAST_BATCH:
        length = _int32(data, position + 8)
        magic = data[position + 16]
        if magic > 2:
            return BAD_MAGIC, position, count
        if length < (_MIN_LENGTH if magic == 2 else _MIN_LEGACY_LENGTH):
            return BAD_LENGTH, position, count
        if length > end - position - _OVERHEAD:
            break
        if magic < 2:
            return LEGACY, position, count
        base = _int64(data, position)
        delta = _int32(data, position + 23)
        if base < 0 or delta < 0 or base > _LARGEST - delta - 1:
            return BAD_LAST_OFFSET, position, count
        if base >= high:
            return REACHED, position, count
        following = position + _OVERHEAD + length
        if base + delta >= low:
            if count == len(table):
                return FULL, position, count
            row = table[count]
            row[POSITION] = position
            row[END] = following
            row[BASE_OFFSET] = base
            row[LAST_OFFSET] = base + delta
            row[CRC] = _int32(data, position + 17) & 0xFFFFFFFF
            row[ATTRIBUTES] = (np.int64(data[position + 21]) << 8) | np.int64(data[position + 22])
            row[BASE_TIMESTAMP] = _int64(data, position + 27)
            row[MAX_TIMESTAMP] = _int64(data, position + 35)
            row[PRODUCER_ID] = _int64(data, position + 43)
            row[RECORDS] = _int32(data, position + 57)
            row[DATA_START] = position + _HEADER
            row[DATA_END] = following
            count += 1
        position = following
    return DONE, position, count


@inlined
def _varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Return a zigzag number of up to 64 bits and the position after it, -1 if it is invalid."""
    if position >= end:
        return 0, -1
    byte = int(np.int64(data[position]))
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    number = byte & 0x7F
    shift = 7
    while position < end:
        byte = int(np.int64(data[position]))
        position += 1
        if shift == 63 and byte > 1:
            return 0, -1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((number >> 1) & _LARGEST) ^ -(number & 1), position
        shift += 7
        if shift > 63:
            return 0, -1
    return 0, -1


@inlined
def _record(data: Bytes, start: int, end: int) -> Record:
    """Parse the record at `start`, up to its headers. The batch ends at `end`."""
    length, position = _varint(data, start, end)
    if position < 0:
        return BAD_VARINT, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if length < _MIN_RECORD - 1 or length > end - position:
        return BAD_RECORD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    end = position + length
    timestamp_delta, position = _varint(data, position + 1, end)
    if position < 0:
        return BAD_VARINT, 0, 0, 0, 0, 0, 0, 0, 0, 0
    delta, position = _varint(data, position, end)
    if position < 0:
        return BAD_VARINT, 0, 0, 0, 0, 0, 0, 0, 0, 0
    key_length, key = _varint(data, position, end)
    if key < 0 or key_length < -1 or key_length > end - key:
        return BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0, 0
    value_length, value = _varint(data, key + max(key_length, 0), end)
    if value < 0 or value_length < -1 or value_length > end - value:
        return BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0, 0
    headers, position = _varint(data, value + max(value_length, 0), end)
    if position < 0 or headers < 0 or headers > (end - position) >> 1:
        return BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0, 0
    return (
        DONE,
        end,
        position,
        timestamp_delta,
        delta,
        key,
        key_length,
        value,
        value_length,
        headers,
    )


@inlined
def _clear_bit(bits: Bytes, index: int) -> None:
    bits[index >> 3] &= 0xFF ^ (1 << (index & 7))


@inlined
def _put(blobs: Blobs, index: int, data: Bytes, start: int, length: int) -> None:
    """Append a byte string, or null if its length is -1. The caller checked that it fits."""
    ends, content, bits = blobs
    filled = ends[index]
    if length < 0:
        _clear_bit(bits, index)
        ends[index + 1] = filled
    else:
        copy(content, int(filled), data, start, length)
        ends[index + 1] = filled + length


@inlined
def _is_ascii(data: Bytes, start: int, end: int) -> bool:
    found = 0
    for at in range(start, end):
        found |= data[at]
    return found < 0x80


@inlined
def _skip_headers(data: Bytes, position: int, end: int, count: int) -> int:
    """Return the position after `count` headers, or -1 if one is invalid."""
    for _ in range(count):
        size, position = _varint(data, position, end)
        if position < 0 or size < 0 or size > end - position:
            return -1
        size, position = _varint(data, position + size, end)
        if position < 0 or size < -1 or size > end - position:
            return -1
        position += max(size, 0)
    return position


@inlined
def _put_headers(
    data: Bytes, position: int, end: int, count: int, used: Longs, headers: Headers
) -> None:
    """Append the headers of a record. `_skip_headers` has checked them."""
    header_ends, bits, keys, values = headers
    row, number = used[ROWS], used[HEADERS]
    if count == 0:
        _clear_bit(bits, row)
        used[NULL_HEADERS] += 1
    for _ in range(count):
        size, position = _varint(data, position, end)
        _put(keys, number, data, position, size)
        if not _is_ascii(data, position, position + size):
            used[NOT_ASCII] += 1
        size, position = _varint(data, position + size, end)
        _put(values, number, data, position, size)
        if size < 0:
            used[NULL_HEADER_VALUES] += 1
        position += max(size, 0)
        number += 1
    used[HEADERS] = number
    header_ends[row + 1] = number


@inlined
def _has_room(
    wanted: int, used: Longs, record: Record, key: Blobs, value: Blobs, headers: Headers
) -> bool:
    _, end, position, _, _, _, key_length, _, value_length, count = record
    row, number = used[ROWS], used[HEADERS]
    if row >= used[ROW_CAPACITY]:
        return False
    if wanted & WANT_KEY and key_length > len(key[1]) - key[0][row]:
        return False
    if wanted & WANT_VALUE and value_length > len(value[1]) - value[0][row]:
        return False
    if not wanted & WANT_HEADERS or count == 0:
        return True
    keys, values, size = headers[2], headers[3], end - position
    return bool(
        count <= len(keys[0]) - 1 - number
        and size <= len(keys[1]) - keys[0][number]
        and size <= len(values[1]) - values[0][number]
    )


@inlined
def _timestamp(row: Longs, delta: int) -> tuple[bool, int]:
    """Return whether the timestamp fits in microseconds, and the timestamp."""
    if row[ATTRIBUTES] & _TIMESTAMP_TYPE:
        millis = row[MAX_TIMESTAMP]
    else:
        base = row[BASE_TIMESTAMP]
        millis = base + delta
        # The sum has overflowed if its sign differs from the signs of both numbers.
        if ((base ^ millis) & (delta ^ millis)) < 0:
            return False, 0
    return -_MAX_MILLIS <= millis <= _MAX_MILLIS, millis * 1000


@inlined
def _put_record(
    data: Bytes,
    batch: Longs,
    wanted: int,
    used: Longs,
    record: Record,
    key: Blobs,
    value: Blobs,
    numbers: Numbers,
    headers: Headers,
) -> int:
    """Append a record. The caller checked that it fits."""
    _, end, position, timestamp_delta, delta, key_at, key_length, at, length, count = record
    row = used[ROWS]
    if wanted & WANT_TIMESTAMP:
        fits, timestamp = _timestamp(batch, timestamp_delta)
        if not fits:
            return BAD_TIMESTAMP
        numbers[1][row] = timestamp
    if wanted & WANT_KEY:
        _put(key, row, data, key_at, key_length)
        if key_length < 0:
            used[NULL_KEYS] += 1
    if wanted & WANT_VALUE:
        _put(value, row, data, at, length)
        if length < 0:
            used[NULL_VALUES] += 1
    if wanted & WANT_OFFSET:
        numbers[0][row] = batch[BASE_OFFSET] + delta
    if wanted & WANT_TIMESTAMP_TYPE:
        numbers[2][row] = (batch[ATTRIBUTES] & _TIMESTAMP_TYPE) >> 3
    if wanted & WANT_HEADERS:
        _put_headers(data, position, end, count, used, headers)
    used[ROWS] = row + 1
    return DONE


@inlined
def _next_record(
    data: Bytes,
    batch: Longs,
    low: int,
    high: int,
    wanted: int,
    cursor: Longs,
    used: Longs,
    key: Blobs,
    value: Blobs,
    numbers: Numbers,
    headers: Headers,
) -> int:
    """Check the record at the cursor, append it if it is wanted, and advance the cursor."""
    record = _record(data, cursor[RECORD], batch[DATA_END])
    status, end, position, _, delta, _, _, _, _, count = record
    if status != DONE:
        return status
    if delta <= cursor[PREVIOUS] or delta > batch[LAST_OFFSET] - batch[BASE_OFFSET]:
        return BAD_OFFSET
    if count:
        position = _skip_headers(data, position, end, count)
    if position != end:
        return BAD_HEADERS if position < 0 else BAD_RECORD_END
    offset = batch[BASE_OFFSET] + delta
    if offset >= high:
        return REACHED
    if offset >= low:
        if not _has_room(wanted, used, record, key, value, headers):
            used[NEEDED] = end - cursor[RECORD]
            return FULL
        status = _put_record(data, batch, wanted, used, record, key, value, numbers, headers)
        if status != DONE:
            return status
    cursor[RECORD] = end
    cursor[PREVIOUS] = delta
    cursor[LEFT] -= 1
    return DONE


_BLOBS: Final = "Tuple((int32[::1], uint8[::1], uint8[::1]))"
_NUMBERS: Final = "Tuple((int64[::1], int64[::1], int32[::1]))"
_HEADERS: Final = f"Tuple((int32[::1], uint8[::1], {_BLOBS}, {_BLOBS}))"


@compiled(
    "int64(uint8[::1], int64[:, ::1], int64, int64, int64, int64, int64[::1], int64[::1],"
    f" {_BLOBS}, {_BLOBS}, {_NUMBERS}, {_HEADERS})"
)
def decode(
    data: Bytes,
    table: Longs,
    last: int,
    low: int,
    high: int,
    wanted: int,
    cursor: Longs,
    used: Longs,
    key: Blobs,
    value: Blobs,
    numbers: Numbers,
    headers: Headers,
) -> int:
    """Append the records with offsets in [low, high) of the table's batches before `last`.

    Start at the cursor, and leave it after the last record read. `used` counts what the arrays
    hold. FULL means that the record at the cursor does not fit; NEEDED is then its size at
    most. If a record is damaged, the cursor is at that record.
    """
    while cursor[BATCH] < last:
        batch = table[cursor[BATCH]]
        if cursor[LEFT] < 0:
            room = (batch[DATA_END] - batch[DATA_START]) // _MIN_RECORD
            if batch[RECORDS] < 0 or batch[RECORDS] > room:
                return BAD_COUNT
            cursor[RECORD] = batch[DATA_START]
            cursor[PREVIOUS] = -1
            cursor[LEFT] = batch[RECORDS]
        status = DONE
        while status == DONE and cursor[LEFT] > 0:
            status = _next_record(
                data, batch, low, high, wanted, cursor, used, key, value, numbers, headers
            )
        if status not in (DONE, REACHED):
            return status
        if status == DONE and cursor[RECORD] != batch[DATA_END]:
            return BAD_BATCH_END
        cursor[BATCH] += 1
        cursor[LEFT] = -1
    return DONE
