"""The arrays that records are decoded into. Arrow batches use their memory without a copy.

When nothing refers to an Arrow batch any more, its arrays return to a pool and are filled again.
Reused memory is much faster than new memory, which costs page faults. At most POOL_SIZE sets of
arrays are kept, besides those of Arrow batches that are still in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_ottla.decode import decode_loops as loops
from pyspark_ottla.decode.decode_loops import Blobs, Headers, Ints, Longs, Numbers
from pyspark_ottla.jit import Bytes
from pyspark_ottla.schema import MAY_BE_NULL

# Each Arrow batch costs some tenths of a millisecond in Python and in Spark, whatever its size.
BATCH_ROWS: Final = 1 << 16
BATCH_BYTES: Final = 8 << 20
BATCH_HEADERS: Final = 1 << 17
POOL_SIZE: Final = 3

HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
_WANTED: Final = {
    "key": loops.WANT_KEY,
    "value": loops.WANT_VALUE,
    "offset": loops.WANT_OFFSET,
    "timestamp": loops.WANT_TIMESTAMP,
    "timestampType": loops.WANT_TIMESTAMP_TYPE,
    "headers": loops.WANT_HEADERS,
}


def wanted_bits(columns: Sequence[str]) -> int:
    """Return the WANT_* bits of these columns for `decode_loops.decode`."""
    unknown = [name for name in columns if name not in TYPES]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]}: expected some of {', '.join(TYPES)}")
    return sum(_WANTED.get(name, 0) for name in set(columns))


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns. It matches the Spark schema."""
    return pa.schema([pa.field(name, TYPES[name], name in MAY_BE_NULL) for name in columns])


class ColumnArrays:
    """Arrays for BATCH_ROWS records, with `data_bytes` each for keys, values and headers."""

    def __init__(self, wanted: int, data_bytes: int = BATCH_BYTES) -> None:
        self.wanted = wanted
        self.data_bytes = data_bytes
        self.used: Longs = np.zeros(loops.USED_SIZE, np.int64)
        self.key = _blobs(BATCH_ROWS, data_bytes, wanted & loops.WANT_KEY)
        self.value = _blobs(BATCH_ROWS, data_bytes, wanted & loops.WANT_VALUE)
        self.numbers: Numbers = (
            np.empty(_rows(wanted & loops.WANT_OFFSET), np.int64),
            np.empty(_rows(wanted & loops.WANT_TIMESTAMP), np.int64),
            np.empty(_rows(wanted & loops.WANT_TIMESTAMP_TYPE), np.int32),
        )
        self.headers = self._new_headers(wanted & loops.WANT_HEADERS)
        self.clear()

    def _new_headers(self, is_wanted: int) -> Headers:
        # Larger arrays are made for one huge record. A header has at least 2 bytes.
        count = BATCH_HEADERS if self.data_bytes <= BATCH_BYTES else self.data_bytes // 2
        rows = _rows(is_wanted)
        return (
            np.zeros(rows + 1, np.int32),
            np.empty(_bytes_of_bits(rows), np.uint8),
            _blobs(count, self.data_bytes, is_wanted),
            _blobs(count, self.data_bytes, is_wanted),
        )

    def clear(self) -> None:
        """Remove the records and keep the memory."""
        self.used[:] = 0
        self.used[loops.ROW_CAPACITY] = BATCH_ROWS
        for bits in (self.key[2], self.value[2], self.headers[1], self.headers[3][2]):
            bits.fill(0xFF)

    @property
    def rows(self) -> int:
        return int(self.used[loops.ROWS])


def _blobs(count: int, data_bytes: int, is_wanted: int) -> Blobs:
    count, data_bytes = (count, data_bytes) if is_wanted else (0, 0)
    ends, data = np.zeros(count + 1, np.int32), np.empty(data_bytes, np.uint8)
    return ends, data, np.empty(_bytes_of_bits(count), np.uint8)


def _rows(is_wanted: int) -> int:
    return BATCH_ROWS if is_wanted else 0


def _bytes_of_bits(count: int) -> int:
    return (count + 7) // 8


class Lease:
    """Owner of the arrays behind Arrow buffers. They are reused when no buffer refers to it."""

    def __init__(self, columns: ColumnArrays) -> None:
        self._columns = columns

    def __del__(self) -> None:
        return_arrays(self._columns)

    def buffer(self, array: Bytes | Ints | Longs, count: int) -> pa.Buffer:
        """Return the first `count` elements as an Arrow buffer."""
        return pa.foreign_buffer(array.ctypes.data, count * array.itemsize, base=self)

    def blobs(self, type_: pa.DataType, blobs: Blobs, count: int, nulls: int) -> pa.Array:
        """Return a column of binaries or strings."""
        ends, data, bits = blobs
        buffers = [
            self.bits(bits, count) if nulls else None,
            self.buffer(ends, count + 1),
            self.buffer(data, int(ends[count])),
        ]
        return pa.Array.from_buffers(type_, count, buffers, nulls)

    def bits(self, bits: Bytes, count: int) -> pa.Buffer:
        """Return the first `count` bits as an Arrow buffer."""
        return self.buffer(bits, _bytes_of_bits(count))

    def numbers(self, type_: pa.DataType, array: Ints | Longs, count: int) -> pa.Array:
        """Return a column of numbers without nulls."""
        return pa.Array.from_buffers(type_, count, [None, self.buffer(array, count)], 0)


_pool: list[ColumnArrays] = []


def take_arrays(wanted: int) -> ColumnArrays:
    """Return empty arrays of the usual size, from the pool if possible."""
    for columns in _pool:
        if columns.wanted == wanted:
            _pool.remove(columns)
            columns.clear()
            return columns
    return ColumnArrays(wanted)


def return_arrays(columns: ColumnArrays) -> None:
    """Put arrays back into the pool. Drop the oldest if there are more than POOL_SIZE."""
    if columns.data_bytes == BATCH_BYTES:
        _pool.append(columns)
        if len(_pool) > POOL_SIZE:
            del _pool[0]
