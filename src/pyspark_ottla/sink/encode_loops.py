"""Compiled loops that encode: they choose the partition of each row, sort rows by partition, and
write records of v2 batches (KIP-98, KIP-82) from Arrow's buffers.

Columns have Arrow's layout: the bytes of all rows one after the other, and the start of each row.
Nulls are marked by 1 in an array with a byte per row; the array is empty if there are no nulls.
The loops allocate nothing and raise nothing.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_ottla.jit import compiled, copy, inlined

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Columns: TypeAlias = tuple[
    Ints, Bytes, Bytes, Ints, Bytes, Bytes, Ints, Bytes, Ints, Bytes, Ints, Bytes, Bytes
]
"""Starts, bytes and nulls of key and value; starts and nulls of the lists of headers; starts and
bytes of header keys; starts, bytes and nulls of header values. Without headers, the starts of
lists are empty."""

ALL_PLACED: Final = -1

# The state of the sticky partitioner of a topic, for rows without a key (KIP-794).
STICKY_PARTITION: Final = 0
STICKY_LEFT: Final = 1
RANDOM: Final = 2
STICKY_SIZE: Final = 3

_ints = "Array(int32, 1, 'C', True, None, False)"  # read-only, may be unaligned
_bytes = "Array(uint8, 1, 'C', True)"
_columns = (
    f"Tuple(({_ints}, {_bytes}, {_bytes}, {_ints}, {_bytes}, {_bytes},"
    f" {_ints}, {_bytes}, {_ints}, {_bytes}, {_ints}, {_bytes}, {_bytes}))"
)
_NONE_NULL: Final = np.empty(0, np.uint8)
_RANDOM_FACTOR: Final = 6364136223846793005
_RANDOM_STEP: Final = 1442695040888963407
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


@inlined
def _murmur2(data: Bytes, start: int, end: int) -> int:
    length = end - start
    h = np.int64(_SEED) ^ length
    position = start
    while end - position >= 4:
        k = (
            np.int64(data[position])
            | np.int64(data[position + 1]) << 8
            | np.int64(data[position + 2]) << 16
            | np.int64(data[position + 3]) << 24
        )
        k = (k * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
        position += 4
    if position < end:
        shift = 0
        while position < end:
            h ^= np.int64(data[position]) << shift
            shift += 8
            position += 1
        h = (h * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return int(h ^ (h >> 15))


@inlined
def _is_null(nulls: Bytes, row: int) -> bool:
    return len(nulls) > 0 and nulls[row] != 0


@inlined
def _stick(state: Longs, count: int, size: int, stay_bytes: int) -> int:
    """Return the partition of a row without a key: the same one for `stay_bytes` bytes."""
    if state[STICKY_LEFT] <= 0 or state[STICKY_PARTITION] >= count:
        state[RANDOM] = state[RANDOM] * _RANDOM_FACTOR + _RANDOM_STEP
        drawn = (state[RANDOM] >> 33) & _POSITIVE
        if count > 1 and state[STICKY_PARTITION] < count:
            drawn = state[STICKY_PARTITION] + 1 + drawn % (count - 1)  # a different one
        state[STICKY_PARTITION] = drawn % count
        state[STICKY_LEFT] = stay_bytes
    state[STICKY_LEFT] -= size
    return int(state[STICKY_PARTITION])


@compiled(
    f"int64({_columns}, {_ints}, {_ints}, {_bytes}, int64[::1], int64[::1], int64[:, ::1], int64,"
    " boolean, int32[::1])"
)
def place(
    columns: Columns,
    topics: Ints,
    given: Ints,
    given_nulls: Bytes,
    first_slots: Longs,
    counts: Longs,
    sticky: Longs,
    stay_bytes: int,
    ignore_keys: bool,
    slots: Ints,
) -> int:
    """Write the slot of each row: the first slot of its topic plus its partition.

    The partition is the given one, otherwise the hash of the key as in Java's producer,
    otherwise the sticky one. An empty `topics` means topic 0, an empty `given` means none given.
    Return the first row whose given partition does not exist, or ALL_PLACED.
    """
    keys, key_data, key_nulls, values = columns[0], columns[1], columns[2], columns[3]
    for row in range(len(slots)):
        topic = topics[row] if len(topics) > 0 else 0
        count = counts[topic]
        if len(given) > 0 and not _is_null(given_nulls, row):
            partition = int(given[row])
            if partition < 0 or partition >= count:
                return row
        elif ignore_keys or _is_null(key_nulls, row):
            size = int(values[row + 1] - values[row]) + (keys[row + 1] - keys[row])
            partition = _stick(sticky[topic], count, size, stay_bytes)
        else:
            hashed = _murmur2(key_data, int(keys[row]), int(keys[row + 1]))
            partition = (hashed & _POSITIVE) % count
        slots[row] = first_slots[topic] + partition
    return ALL_PLACED


@compiled("void(int32[::1], int64[::1], int32[::1])")
def sort_by_slot(slots: Ints, starts: Longs, rows: Ints) -> None:
    """Write the rows sorted by slot, and the start of each slot.

    Rows of one slot keep their order. `starts` has one more element than there are slots.
    """
    starts[:] = 0
    for slot in slots:
        starts[slot + 1] += 1
    for slot in range(1, len(starts)):
        starts[slot] += starts[slot - 1]
    for row in range(len(slots)):
        slot = slots[row]
        rows[starts[slot]] = row
        starts[slot] += 1
    for slot in range(len(starts) - 1, 0, -1):  # each start is now at the end of its slot
        starts[slot] = starts[slot - 1]
    starts[0] = 0


@inlined
def _number_size(number: int) -> int:
    """Return the size of a varint. The number must not be negative."""
    zigzag = np.uint64(number) << np.uint64(1)
    size = 1
    while zigzag > np.uint64(0x7F):
        zigzag >>= np.uint64(7)
        size += 1
    return size


@inlined
def _field_size(starts: Ints, nulls: Bytes, row: int) -> int:
    if _is_null(nulls, row):
        return 1
    length = int(starts[row + 1] - starts[row])
    return _number_size(length) + length


@inlined
def _headers_size(names: Ints, contents: Ints, content_nulls: Bytes, first: int, end: int) -> int:
    """Return the size of headers, with their count."""
    size = _number_size(end - first)
    for header in range(first, end):
        length = int(names[header + 1] - names[header])
        size += _number_size(length) + length + _field_size(contents, content_nulls, header)
    return size


@inlined
def _put_number(out: Bytes, position: int, number: int) -> int:
    zigzag = np.uint64(number) << np.uint64(1)
    while zigzag > np.uint64(0x7F):
        out[position] = np.uint8((zigzag & np.uint64(0x7F)) | np.uint64(0x80))
        zigzag >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(zigzag)
    return position + 1


@inlined
def _put_field(out: Bytes, position: int, starts: Ints, data: Bytes, nulls: Bytes, row: int) -> int:
    if _is_null(nulls, row):
        out[position] = 1  # zigzag of -1
        return position + 1
    start = int(starts[row])
    length = int(starts[row + 1]) - start
    position = _put_number(out, position, length)
    copy(out, position, data, start, length)
    return position + length


@compiled(
    f"Tuple((int64, int64))({_columns}, int32[::1], int64, int64, uint8[::1], int64, int64, int64)"
)
def encode(
    columns: Columns,
    rows: Ints,
    first: int,
    end: int,
    out: Bytes,
    position: int,
    delta: int,
    timestamp_delta: int,
) -> tuple[int, int]:
    """Write rows[first:end] as records at `position`, with offset deltas from `delta` on.

    Stop before a record that does not fit. Return the index of the first row that is not
    written, and the position after the last record.
    """
    # Unpack the tuple once: passing it to other functions costs more than everything else.
    keys, key_data, key_nulls, values, value_data, value_nulls = columns[:6]
    lists, list_nulls, names, name_data, contents, content_data, content_nulls = columns[6:]
    room = len(out)
    fixed = 1 + _number_size(timestamp_delta)
    number = first
    while number < end:
        row = rows[number]
        body = fixed + _number_size(delta)
        body += _field_size(keys, key_nulls, row) + _field_size(values, value_nulls, row)
        first_header = end_header = 0
        if len(lists) > 0 and not _is_null(list_nulls, row):
            first_header, end_header = int(lists[row]), int(lists[row + 1])
        body += _headers_size(names, contents, content_nulls, first_header, end_header)
        if body + _number_size(body) > room - position:
            break
        position = _put_number(out, position, body)
        out[position] = 0  # attributes
        position = _put_number(out, position + 1, timestamp_delta)
        position = _put_number(out, position, delta)
        position = _put_field(out, position, keys, key_data, key_nulls, row)
        position = _put_field(out, position, values, value_data, value_nulls, row)
        position = _put_number(out, position, end_header - first_header)
        for header in range(first_header, end_header):
            position = _put_field(out, position, names, name_data, _NONE_NULL, header)
            position = _put_field(out, position, contents, content_data, content_nulls, header)
        number += 1
        delta += 1
    return number, position
