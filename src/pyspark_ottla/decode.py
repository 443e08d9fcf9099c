"""Fetched bytes of partitions to Arrow batches: checksums, codecs, transactions, then the loops.

Batches of several partitions go into one Arrow batch, and one large batch into several: an
Arrow batch is given out when it is full, whatever it holds. Work in Python is per batch of the
log or less; work per record is in `loops`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final

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
from pyspark_ottla import loops
from pyspark_ottla.arrow import Run, record_batch
from pyspark_ottla.columns import BATCH_BYTES, Columns, take, wanted_bits
from pyspark_ottla.compiled import Bytes
from pyspark_ottla.decompress import NoRoom, Scratch
from pyspark_ottla.errors import DamagedRecords
from pyspark_ottla.faults import FAULTS
from pyspark_ottla.legacy import as_batch, read_message
from pyspark_ottla.loops import Longs
from pyspark_ottla.section import Section

TABLE_ROWS: Final = 4096


class Decoder:
    """Collects the records of sections and gives them out as Arrow batches of `columns`."""

    def __init__(self, columns: Sequence[str], *, check_crcs: bool = True) -> None:
        self._names = tuple(columns)
        self._wanted = wanted_bits(columns)
        self._check_crcs = check_crcs
        self._columns = take(self._wanted)
        self._table: Longs = np.empty((TABLE_ROWS, loops.TABLE_COLUMNS), np.int64)
        self._cursor: Longs = np.zeros(loops.CURSOR_SIZE, np.int64)
        self._scratch = Scratch()
        self._runs: list[Run] = []
        self._run_start = 0

    def decode(self, section: Section) -> Iterator[pa.RecordBatch]:
        """Take the wanted records of a section; give out what became full on the way."""
        data: Bytes = np.frombuffer(section.records, np.uint8)
        position, status = 0, loops.FULL
        while status in (loops.FULL, loops.LEGACY):
            status, position, count = loops.scan(
                data, position, len(data), section.low, section.high, self._table
            )
            if count:
                yield from self._batches(section, data, count)
            if status == loops.LEGACY:
                position = yield from self._legacy(section, position)
        if status in FAULTS:
            raise damaged(section, section.low, FAULTS[status])
        self._end_run(section)

    def finish(self) -> pa.RecordBatch | None:
        """What is left, or None."""
        return self._give_out() if self._columns.rows else None

    def _batches(self, section: Section, data: Bytes, count: int) -> Iterator[pa.RecordBatch]:
        table, aborted = self._table, section.aborted
        if self._check_crcs:
            check_crcs(section, table[:count])
        if not aborted.is_idle or (table[:count, loops.ATTRIBUTES] & CONTROL_MASK).any():
            count = drop_batches(section, table, count)
        start = 0
        compressed = (table[:count, loops.ATTRIBUTES] & COMPRESSION_MASK) != 0
        edges = np.flatnonzero(compressed[1:] != compressed[:-1]) + 1
        for end in [*edges.tolist(), count]:
            if end > start and compressed[start]:
                yield from self._compressed(section, start, end)
            elif end > start:
                yield from self._records(section, data, start, end)
            start = end

    def _compressed(self, section: Section, start: int, end: int) -> Iterator[pa.RecordBatch]:
        scratch = self._scratch
        batch = start
        while batch < end:
            try:
                self._decompress(section, batch)
                batch += 1
            except NoRoom:
                yield from self._records(section, scratch.data, start, batch)
                scratch.clear()
                start = batch
        yield from self._records(section, scratch.data, start, end)
        scratch.clear()

    def _decompress(self, section: Section, batch: int) -> None:
        row = self._table[batch]
        payload = section.records[int(row[loops.DATA_START]) : int(row[loops.DATA_END])]
        before = self._scratch.used
        # A batch that compaction emptied keeps its codec, but there is nothing in that codec.
        if len(payload):
            try:
                self._scratch.add(int(row[loops.ATTRIBUTES]) & COMPRESSION_MASK, payload)
            except CorruptBatch as error:
                raise damaged(section, int(row[loops.BASE_OFFSET]), error.reason) from None
        row[loops.DATA_START] = before
        row[loops.DATA_END] = self._scratch.used

    def _records(
        self, section: Section, data: Bytes, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        """The records of batches [start, end) of the table, which stand in `data`."""
        cursor = self._cursor
        cursor[:] = (start, 0, -1, -1)
        while True:
            columns = self._columns
            status = loops.decode(
                data,
                self._table,
                end,
                section.low,
                section.high,
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
                raise damaged(section, offset, FAULTS[status])
            if columns.rows:
                self._end_run(section)
                yield self._give_out()
            else:  # one record larger than the usual room, and it is all here
                needed = int(columns.used[loops.NEEDED])
                self._columns = Columns(self._wanted, max(needed, BATCH_BYTES + 1))

    def _legacy(self, section: Section, position: int) -> Generator[pa.RecordBatch, None, int]:
        """The message of magic 0 or 1 at `position`; returns the position after it."""
        try:
            message, records = read_message(section.records, position, self._check_crcs)
        except CorruptBatch as error:
            raise damaged(section, section.low, error.reason) from None
        for record in records:
            if not section.low <= record.offset < section.high:
                continue
            batch = np.frombuffer(as_batch(record, message.timestamp_type), np.uint8)
            loops.scan(batch, 0, len(batch), section.low, section.high, self._table)
            yield from self._records(section, batch, 0, 1)
            if message.timestamp_type is None and self._wanted & loops.WANT_TIMESTAMP_TYPE:
                self._columns.numbers[2][self._columns.rows - 1] = -1
        return message.end

    def _end_run(self, section: Section) -> None:
        rows = self._columns.rows - self._run_start
        if rows:
            self._runs.append(Run(section.topic, section.partition, rows))
            self._run_start += rows

    def _give_out(self) -> pa.RecordBatch:
        made = record_batch(self._columns, self._names, self._runs)
        self._columns = take(self._wanted)
        self._runs = []
        self._run_start = 0
        return made


def check_crcs(section: Section, table: Longs) -> None:
    """Raise at the first batch whose bytes are not those its checksum was made of."""
    columns = (loops.POSITION, loops.END, loops.CRC)
    starts, ends, expected = (table[:, column].tolist() for column in columns)
    records = section.records
    for number, (start, end, crc) in enumerate(zip(starts, ends, expected, strict=True)):
        if crc32c(records[start + ATTRIBUTES_OFFSET : end]) != crc:
            offset = int(table[number, loops.BASE_OFFSET])
            raise damaged(section, offset, "its checksum is wrong")


def drop_batches(section: Section, table: Longs, count: int) -> int:
    """Take control batches and aborted ones out of the table; returns how many are left."""
    aborted = section.aborted
    kept = []
    for number, row in enumerate(table[:count].tolist()):
        is_control = bool(row[loops.ATTRIBUTES] & CONTROL_MASK)
        is_abort = is_control and not aborted.is_idle and _is_abort(section, row)
        dropped = aborted.drops(
            row[loops.LAST_OFFSET], row[loops.ATTRIBUTES], row[loops.PRODUCER_ID], is_abort
        )
        if not is_control and not dropped:
            kept.append(number)
    table[: len(kept)] = table[kept]
    return len(kept)


def _is_abort(section: Section, row: Sequence[int]) -> bool:
    try:
        records = records_of(section.records[row[loops.POSITION] : row[loops.END]])
        return bool(records) and control_type(records[0].key) == ControlType.ABORT
    except CorruptBatch as error:
        raise damaged(section, row[loops.BASE_OFFSET], error.reason) from None


def damaged(section: Section, offset: int, reason: str) -> DamagedRecords:
    """The error for a batch that cannot be read."""
    return DamagedRecords(section.topic, section.partition, offset, reason)
