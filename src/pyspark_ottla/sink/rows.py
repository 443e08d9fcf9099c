"""Turns an Arrow batch of rows into arrays for the compiled loops.

Keys and values are not copied, and no object is made per row. The columns are those of Spark's
own sink (key, value, headers, topic, partition); others are ignored. Types were checked when
the write was planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow
import pyarrow.compute

from pyspark_ottla.sink.encode_loops import Bytes, Columns, Ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

NULL_TOPIC = "null topic present in the data. Use the topic option for setting a default topic."
NULL_HEADER_KEY = "a header in the data has no key: remove the header or set its key"

_NO_INTS: Ints = np.empty(0, np.int32)
_NO_BYTES: Bytes = np.empty(0, np.uint8)


class Rows(NamedTuple):
    """The rows of one Arrow batch.

    `topics` has the index of each row's topic in `names`. It is empty if there is only one.
    """

    size: int
    columns: Columns
    names: list[str]
    topics: Ints
    partitions: Ints
    partition_nulls: Bytes


def rows_of(batch: pyarrow.RecordBatch, topic: str | None) -> Rows:
    """Return the rows of a batch, all for `topic` if it is given.

    Raise ValueError for a null topic or a header without key.
    """
    names, topics = ([topic], _NO_INTS) if topic is not None else _topics(batch)
    given = _column(batch, "partition")
    return Rows(
        batch.num_rows,
        (*_key(batch), *_byte_strings(batch.column("value")), *_headers(_column(batch, "headers"))),
        names,
        topics,
        _NO_INTS if given is None else _values(given, np.int32),
        _NO_BYTES if given is None else _nulls(given),
    )


def _column(batch: pyarrow.RecordBatch, name: str) -> pyarrow.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def _key(batch: pyarrow.RecordBatch) -> tuple[Ints, Bytes, Bytes]:
    column = _column(batch, "key")
    if column is not None:
        return _byte_strings(column)
    return np.zeros(batch.num_rows + 1, np.int32), _NO_BYTES, np.ones(batch.num_rows, np.uint8)


def _topics(batch: pyarrow.RecordBatch) -> tuple[list[str], Ints]:
    column = batch.column("topic")
    if column.null_count:
        raise ValueError(NULL_TOPIC)
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    return names, _NO_INTS if len(names) == 1 else _values(encoded.indices, np.int32)


def _headers(
    column: pyarrow.Array | None,
) -> tuple[Ints, Bytes, Ints, Bytes, Ints, Bytes, Bytes]:
    if column is None:
        return _NO_INTS, _NO_BYTES, _NO_INTS, _NO_BYTES, _NO_INTS, _NO_BYTES, _NO_BYTES
    names, contents = column.values.flatten()  # a null header gets a null key
    if names.null_count and column.flatten().flatten()[0].null_count:
        raise ValueError(NULL_HEADER_KEY)
    name_starts, name_data, _ = _byte_strings(names)
    lists = _values(column.offsets, np.int32)
    return lists, _nulls(column), name_starts, name_data, *_byte_strings(contents)


def _byte_strings(column: pyarrow.Array) -> tuple[Ints, Bytes, Bytes]:
    """Return starts, bytes and nulls of a column of strings or binaries."""
    if pyarrow.types.is_large_string(column.type) or pyarrow.types.is_large_binary(column.type):
        column = column.cast(pyarrow.binary())
    _, starts, data = column.buffers()
    if starts is None or len(column) == 0:
        return np.zeros(len(column) + 1, np.int32), _NO_BYTES, _nulls(column)
    return (
        np.frombuffer(starts, np.int32, len(column) + 1, column.offset * 4),
        _NO_BYTES if data is None else np.frombuffer(data, np.uint8),
        _nulls(column),
    )


def _values(column: pyarrow.Array, kind: type[np.int32]) -> NDArray[np.int32]:
    if len(column) == 0:
        return np.empty(0, kind)
    _, data = column.buffers()
    return np.frombuffer(data, kind, len(column), column.offset * np.dtype(kind).itemsize)


def _nulls(column: pyarrow.Array) -> Bytes:
    """Return a byte per row, 1 for null. The array is empty if there are no nulls."""
    if column.null_count == 0:
        return _NO_BYTES
    marks: Bytes = column.is_null().to_numpy(zero_copy_only=False).view(np.uint8)
    return marks
