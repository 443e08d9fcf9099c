"""Decodes fetched record batches into Arrow batches.

The steps are: check CRCs, drop aborted transactions, decompress, decode records. An Arrow batch
is emitted when it is full. It may hold record batches of several partitions, and a large record
batch may be divided among several Arrow batches. Python code runs per record batch. Code that
runs per record is compiled, in `decode_loops`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CorruptBatch,
)
from ottla.records.checksum import crc32c
from ottla.records.control import ControlType, control_type
from ottla.records.record import records_of
from pyspark_ottla.decode import decode_loops as loops
from pyspark_ottla.decode.aborted_transactions import AbortedFilter
from pyspark_ottla.decode.arrow_batch import Run, record_batch
from pyspark_ottla.decode.column_arrays import BATCH_BYTES, ColumnArrays, take_arrays, wanted_bits
from pyspark_ottla.decode.damage import DAMAGE
from pyspark_ottla.decode.decode_loops import Longs
from pyspark_ottla.decode.decompression import NoRoom, Scratch
from pyspark_ottla.decode.legacy_messages import as_batch, read_message
from pyspark_ottla.errors import DamagedRecords
from pyspark_ottla.jit import Bytes

TABLE_ROWS: Final = 4096


class FetchedBatches(NamedTuple):
    """Record batches of one partition. Only records with offsets in [low, high) are wanted.

    All items that one response has for a partition share the same `aborted`.
    """

    topic: str
    partition: int
    records: memoryview
    low: int
    high: int
    aborted: AbortedFilter


class Decoder:
    """Collects records and emits them as Arrow batches with these columns."""

    def __init__(self, columns: Sequence[str], *, check_crcs: bool = True) -> None:
        self._names = tuple(columns)
        self._wanted = wanted_bits(columns)
        self._check_crcs = check_crcs
        self._columns = take_arrays(self._wanted)
        self._table: Longs = np.empty((TABLE_ROWS, loops.TABLE_COLUMNS), np.int64)
        self._cursor: Longs = np.zeros(loops.CURSOR_SIZE, np.int64)
        self._scratch = Scratch()
        self._runs: list[Run] = []
        self._run_start = 0

    def decode(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        """Decode the wanted records. Yield the Arrow batches that became full."""
        data: Bytes = np.frombuffer(fetched.records, np.uint8)
        position, status = 0, loops.FULL
        while status in (loops.FULL, loops.LEGACY):
            status, position, count = loops.scan(
                data, position, len(data), fetched.low, fetched.high, self._table
            )
            if count:
                yield from self._batches(fetched, data, count)
            if status == loops.LEGACY:
                position = yield from self._legacy(fetched, position)
        if status in DAMAGE:
            raise damaged(fetched, fetched.low, DAMAGE[status])
        self._end_run(fetched)

    def finish(self) -> pa.RecordBatch | None:
        """Return the last Arrow batch, or None if no records are left."""
        return self._emit() if self._columns.rows else None

    def _batches(
        self, fetched: FetchedBatches, data: Bytes, count: int
    ) -> Iterator[pa.RecordBatch]:
        table, aborted = self._table, fetched.aborted
        if self._check_crcs:
            check_crcs(fetched, table[:count])
        if not aborted.is_idle or (table[:count, loops.ATTRIBUTES] & CONTROL_MASK).any():
            count = drop_batches(fetched, table, count)
        start = 0
        compressed = (table[:count, loops.ATTRIBUTES] & COMPRESSION_MASK) != 0
        edges = np.flatnonzero(compressed[1:] != compressed[:-1]) + 1
        for end in [*edges.tolist(), count]:
            if end > start and compressed[start]:
                yield from self._compressed(fetched, start, end)
            elif end > start:
                yield from self._records(fetched, data, start, end)
            start = end

    def _compressed(
        self, fetched: FetchedBatches, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        scratch = self._scratch
        batch = start
        while batch < end:
            try:
                self._decompress(fetched, batch)
                batch += 1
            except NoRoom:
                yield from self._records(fetched, scratch.data, start, batch)
                scratch.clear()
                start = batch
        yield from self._records(fetched, scratch.data, start, end)
        scratch.clear()

    def _decompress(self, fetched: FetchedBatches, batch: int) -> None:
        row = self._table[batch]
        payload = fetched.records[int(row[loops.DATA_START]) : int(row[loops.DATA_END])]
        before = self._scratch.used
        # A batch that compaction has emptied still names its codec, but has no data.
        if len(payload):
            try:
                self._scratch.add(int(row[loops.ATTRIBUTES]) & COMPRESSION_MASK, payload)
            except CorruptBatch as error:
                raise damaged(fetched, int(row[loops.BASE_OFFSET]), error.reason) from None
        row[loops.DATA_START] = before
        row[loops.DATA_END] = self._scratch.used

    def _records(
        self, fetched: FetchedBatches, data: Bytes, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode the batches [start, end) of the table. Their records are in `data`."""
        cursor = self._cursor
        cursor[:] = (start, 0, -1, -1)
        while True:
            columns = self._columns
            status = loops.decode(
                data,
                self._table,
                end,
                fetched.low,
                fetched.high,
                self._wanted,
                cursor,
                columns.used,
                columns.key,
                columns.value,
                columns.numbers,
                columns.headers,
            )
            if status == loops.DONE:
                return
            if status != loops.FULL:
                offset = int(self._table[cursor[loops.BATCH], loops.BASE_OFFSET])
                raise damaged(fetched, offset, DAMAGE[status])
            if columns.rows:
                self._end_run(fetched)
                yield self._emit()
            else:  # a single record larger than the usual arrays
                needed = int(columns.used[loops.NEEDED])
                self._columns = ColumnArrays(self._wanted, max(needed, BATCH_BYTES + 1))

    def _legacy(
        self, fetched: FetchedBatches, position: int
    ) -> Generator[pa.RecordBatch, None, int]:
        """Decode the message of magic 0 or 1 at `position`. Return the position after it."""
        try:
            message, records = read_message(fetched.records, position, self._check_crcs)
        except CorruptBatch as error:
            raise damaged(fetched, fetched.low, error.reason) from None
        for record in records:
            if not fetched.low <= record.offset < fetched.high:
                continue
            batch = np.frombuffer(as_batch(record, message.timestamp_type), np.uint8)
            loops.scan(batch, 0, len(batch), fetched.low, fetched.high, self._table)
            yield from self._records(fetched, batch, 0, 1)
            if message.timestamp_type is None and self._wanted & loops.WANT_TIMESTAMP_TYPE:
                self._columns.numbers[2][self._columns.rows - 1] = -1
        return message.end

    def _end_run(self, fetched: FetchedBatches) -> None:
        rows = self._columns.rows - self._run_start
        if rows:
            self._runs.append(Run(fetched.topic, fetched.partition, rows))
            self._run_start += rows

    def _emit(self) -> pa.RecordBatch:
        made = record_batch(self._columns, self._names, self._runs)
        self._columns = take_arrays(self._wanted)
        self._runs = []
        self._run_start = 0
        return made


def check_crcs(fetched: FetchedBatches, table: Longs) -> None:
    """Raise DamagedRecords for the first batch with a wrong CRC."""
    columns = (loops.POSITION, loops.END, loops.CRC)
    starts, ends, expected = (table[:, column].tolist() for column in columns)
    records = fetched.records
    for number, (start, end, crc) in enumerate(zip(starts, ends, expected, strict=True)):
        if crc32c(records[start + ATTRIBUTES_OFFSET : end]) != crc:
            offset = int(table[number, loops.BASE_OFFSET])
            raise damaged(fetched, offset, "its checksum is wrong")


def drop_batches(fetched: FetchedBatches, table: Longs, count: int) -> int:
    """Remove control batches and aborted batches from the table. Return how many are left."""
    aborted = fetched.aborted
    kept = []
    for number, row in enumerate(table[:count].tolist()):
        is_control = bool(row[loops.ATTRIBUTES] & CONTROL_MASK)
        is_abort = is_control and not aborted.is_idle and _is_abort(fetched, row)
        dropped = aborted.drops(
            row[loops.LAST_OFFSET], row[loops.ATTRIBUTES], row[loops.PRODUCER_ID], is_abort
        )
        if not is_control and not dropped:
            kept.append(number)
    table[: len(kept)] = table[kept]
    return len(kept)


def _is_abort(fetched: FetchedBatches, row: Sequence[int]) -> bool:
    try:
        records = records_of(fetched.records[row[loops.POSITION] : row[loops.END]])
        return bool(records) and control_type(records[0].key) == ControlType.ABORT
    except CorruptBatch as error:
        raise damaged(fetched, row[loops.BASE_OFFSET], error.reason) from None


def damaged(fetched: FetchedBatches, offset: int, reason: str) -> DamagedRecords:
    """Return the error for a damaged batch."""
    return DamagedRecords(fetched.topic, fetched.partition, offset, reason)
