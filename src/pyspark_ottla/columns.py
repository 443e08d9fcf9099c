"""The arrays that records are decoded into, and the Arrow batches made of them without a copy.

An Arrow batch keeps its arrays until nothing refers to it; then they return to a pool and are
filled again. Memory that was touched once is cheap to touch again, memory that was not is dear,
and there is never more of it than a reader of the batches holds on to, plus POOLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_ottla import loops
from pyspark_ottla.compiled import Bytes
from pyspark_ottla.loops import Blobs, Headers, Ints, Longs, Numbers
from pyspark_ottla.schema import MAY_BE_NULL

# Each batch costs some tenths of a millisecond in Python and in Spark, whatever it holds.
BATCH_ROWS: Final = 1 << 16
BATCH_BYTES: Final = 8 << 20
BATCH_HEADERS: Final = 1 << 17
POOLED: Final = 3

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
    """What the decoding loop has to write for these columns."""
    unknown = [name for name in columns if name not in TYPES]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]}: there are {', '.join(TYPES)}")
    return sum(_WANTED.get(name, 0) for name in set(columns))


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of the batches with these columns, as Spark declares it."""
    return pa.schema([pa.field(name, TYPES[name], name in MAY_BE_NULL) for name in columns])


class Columns:
    """Room for BATCH_ROWS records with `data_bytes` of keys, of values and of headers each."""

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
        # More than the usual room is made for one huge record, of which headers take 2 bytes.
        count = BATCH_HEADERS if self.data_bytes <= BATCH_BYTES else self.data_bytes // 2
        rows = _rows(is_wanted)
        return (
            np.zeros(rows + 1, np.int32),
            np.empty(_bytes_of_bits(rows), np.uint8),
            _blobs(count, self.data_bytes, is_wanted),
            _blobs(count, self.data_bytes, is_wanted),
        )

    def clear(self) -> None:
        """Forget the records, keep the memory."""
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
    """Keeps columns from being filled again for as long as an Arrow buffer refers to it."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def __del__(self) -> None:
        give_back(self._columns)

    def buffer(self, array: Bytes | Ints | Longs, count: int) -> pa.Buffer:
        """The first `count` elements as an Arrow buffer."""
        return pa.foreign_buffer(array.ctypes.data, count * array.itemsize, base=self)

    def blobs(self, type_: pa.DataType, blobs: Blobs, count: int, nulls: int) -> pa.Array:
        """A column of byte strings or strings."""
        ends, data, bits = blobs
        buffers = [
            self.bits(bits, count) if nulls else None,
            self.buffer(ends, count + 1),
            self.buffer(data, int(ends[count])),
        ]
        return pa.Array.from_buffers(type_, count, buffers, nulls)

    def bits(self, bits: Bytes, count: int) -> pa.Buffer:
        """The first `count` bits."""
        return self.buffer(bits, _bytes_of_bits(count))

    def numbers(self, type_: pa.DataType, array: Ints | Longs, count: int) -> pa.Array:
        """A column of numbers without nulls."""
        return pa.Array.from_buffers(type_, count, [None, self.buffer(array, count)], 0)


_pool: list[Columns] = []


def take(wanted: int) -> Columns:
    """Empty columns of the usual size, from the pool if it has such."""
    for columns in _pool:
        if columns.wanted == wanted:
            _pool.remove(columns)
            columns.clear()
            return columns
    return Columns(wanted)


def give_back(columns: Columns) -> None:
    """Keep columns for the next batch; the oldest go when there are more than POOLED."""
    if columns.data_bytes == BATCH_BYTES:
        _pool.append(columns)
        if len(_pool) > POOLED:
            del _pool[0]
