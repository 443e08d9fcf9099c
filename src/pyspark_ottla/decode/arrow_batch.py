"""Makes an Arrow batch of decoded records, and adds the columns `topic` and `partition`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_ottla.decode import decode_loops as loops
from pyspark_ottla.decode.column_arrays import (
    BATCH_ROWS,
    HEADER_TYPE,
    TYPES,
    ColumnArrays,
    Lease,
    arrow_schema,
)


class Run(NamedTuple):
    """Consecutive rows of one partition."""

    topic: str
    partition: int
    rows: int


def record_batch(
    columns: ColumnArrays, names: Sequence[str], runs: Sequence[Run]
) -> pa.RecordBatch:
    """Return the records as an Arrow batch, which owns the arrays from now on."""
    lease = Lease(columns)
    arrays = [_array(name, columns, lease, runs) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=_schema(tuple(names)))


@lru_cache(maxsize=16)
def _schema(names: tuple[str, ...]) -> pa.Schema:
    return arrow_schema(names)


def _array(name: str, columns: ColumnArrays, lease: Lease, runs: Sequence[Run]) -> pa.Array:
    rows, used = columns.rows, columns.used
    match name:
        case "key":
            return lease.blobs(TYPES[name], columns.key, rows, int(used[loops.NULL_KEYS]))
        case "value":
            return lease.blobs(TYPES[name], columns.value, rows, int(used[loops.NULL_VALUES]))
        case "topic":
            return _topics(runs)
        case "partition":
            return _partitions(runs)
        case "offset":
            return lease.numbers(TYPES[name], columns.numbers[0], rows)
        case "timestamp":
            return lease.numbers(TYPES[name], columns.numbers[1], rows)
        case "timestampType":
            return lease.numbers(TYPES[name], columns.numbers[2], rows)
    return _headers(columns, lease)


def _topics(runs: Sequence[Run]) -> pa.Array:
    if len({run.topic for run in runs}) == 1:
        return _same_topic(runs[0].topic).slice(0, sum(run.rows for run in runs))
    return pa.concat_arrays([_same_topic(run.topic).slice(0, run.rows) for run in runs])


def _partitions(runs: Sequence[Run]) -> pa.Array:
    numbers, rows = [run.partition for run in runs], [run.rows for run in runs]
    if len(set(numbers)) == 1:
        return _same_partition(numbers[0]).slice(0, sum(rows))
    return pa.array(np.repeat(np.array(numbers, np.int32), rows))


@lru_cache(maxsize=16)
def _same_partition(partition: int) -> pa.Array:
    """Return a column of one partition number, to be sliced. New memory per batch is slow."""
    return pa.array(np.full(BATCH_ROWS, partition, np.int32))


@lru_cache(maxsize=16)
def _same_topic(topic: str) -> pa.Array:
    """Return a column of one topic name. It is made once, and every batch takes a slice."""
    name = topic.encode()
    ends = np.arange(BATCH_ROWS + 1, dtype=np.int32) * np.int32(len(name))
    data = [None, pa.py_buffer(ends), pa.py_buffer(name * BATCH_ROWS)]
    return pa.Array.from_buffers(pa.string(), BATCH_ROWS, data, 0)


def _headers(columns: ColumnArrays, lease: Lease) -> pa.Array:
    """Return the column of headers: null for records without headers, as in Spark's source."""
    rows, used = columns.rows, columns.used
    count, nulls = int(used[loops.HEADERS]), int(used[loops.NULL_HEADERS])
    ends, bits, header_keys, header_values = columns.headers
    keys = lease.blobs(pa.string(), header_keys, count, 0)
    if used[loops.NOT_ASCII]:
        keys = _as_text(keys)
    null_values = int(used[loops.NULL_HEADER_VALUES])
    values = lease.blobs(pa.binary(), header_values, count, null_values)
    pairs = pa.Array.from_buffers(HEADER_TYPE, count, [None], 0, children=[keys, values])
    buffers = [lease.bits(bits, rows) if nulls else None, lease.buffer(ends, rows + 1)]
    return pa.Array.from_buffers(TYPES["headers"], rows, buffers, nulls, children=[pairs])


def _as_text(keys: pa.Array) -> pa.Array:
    """Replace invalid UTF-8 in header keys by replacement characters, as Java does."""
    try:
        keys.validate(full=True)
        return keys
    except pa.ArrowInvalid:
        raw = keys.view(pa.binary()).to_pylist()
        return pa.array([key.decode("utf-8", "replace") for key in raw], pa.string())
