"""The record batches of the sink: OpenBatch is being filled, Batch is complete.

A complete batch has a header and a CRC. Its producer id and its sequence may still change, if
the broker has lost the state of the producer. Then the CRC is computed again.

A full batch that is not compressed keeps the memory that it was filled in, and the next one gets
new memory: rows are copied once, from Arrow's buffers into the batch.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np

from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from ottla.ports import Buffer
from ottla.records.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    PRODUCER_ID_OFFSET,
    TRANSACTIONAL_MASK,
    parse_header,
    seal,
)
from ottla.records.compression import compress
from ottla.records.record import build_batch, records_of
from pyspark_ottla.sink.encode_loops import Columns, encode
from pyspark_ottla.sink.partitioner import PartitionRows

_FULL: Final = 0.75  # a batch with less in it is copied, so that it takes no more memory
_FIXED_BYTES: Final = 40  # at most, for all numbers of a record
_HEADER_LENGTHS: Final = 10
_PRODUCER: Final = Struct(">qhi")  # producer id, epoch, base sequence


class Batch:
    """A complete batch that is to be sent, or was sent, to its partition."""

    __slots__ = ("attempts", "data", "give_up_at", "partition", "records", "sequence")

    def __init__(self, partition: TopicPartition, data: Buffer, records: int) -> None:
        self.partition = partition
        self.data = memoryview(data)
        self.records = records
        self.sequence = NO_SEQUENCE
        self.attempts = 0
        self.give_up_at: float | None = None

    @property
    def size(self) -> int:
        return len(self.data)

    def set_producer(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Set the producer and the sequence, and compute the CRC."""
        self.sequence = sequence
        _PRODUCER.pack_into(self.data, PRODUCER_ID_OFFSET, producer_id, producer_epoch, sequence)
        seal(self.data, 0, len(self.data))

    def split(self) -> tuple[Batch, Batch]:
        """Split the batch in two, in order. The new batches have no sequence yet."""
        header = parse_header(self.data, 0)
        records = [
            (record.key, record.value, record.timestamp, record.headers)
            for record in records_of(self.data)
        ]
        middle = len(records) // 2
        first, second = (
            Batch(
                self.partition,
                build_batch(
                    part, codec=header.compression, is_transactional=header.is_transactional
                ),
                len(part),
            )
            for part in (records[:middle], records[middle:])
        )
        return first, second


class OpenBatch:
    """A batch of one partition that is filled with rows. It can be reused after `close`."""

    def __init__(self, partition: TopicPartition, capacity: int) -> None:
        self.partition = partition
        self.records = 0
        self._base_timestamp = 0
        self._last_timestamp = 0
        self._capacity = capacity
        self._array = np.empty(capacity, np.uint8)
        self._position = HEADER_SIZE

    @property
    def size(self) -> int:
        """The bytes so far, before compression."""
        return self._position

    def add(self, columns: Columns, part: PartitionRows, first: int, now_ms: int) -> int:
        """Add rows from index `first` on, as many as fit. Return the index of the next row."""
        if self.records == 0:
            self._base_timestamp = self._last_timestamp = now_ms
        self._last_timestamp = max(now_ms, self._last_timestamp)
        following, self._position = encode(
            columns,
            part.rows,
            first,
            part.end,
            self._array,
            self._position,
            self.records,
            self._last_timestamp - self._base_timestamp,
        )
        self.records += following - first
        return following

    def close(self, codec: int, level: int | None, *, transactional: bool = False) -> Batch:
        """Return the rows so far as a complete batch, and empty this one."""
        data = self._complete(codec, level)
        HEADER.pack_into(
            data,
            0,
            0,
            len(data) - LOG_OVERHEAD,
            -1,
            MAGIC_V2,
            0,
            codec | (TRANSACTIONAL_MASK if transactional else 0),
            self.records - 1,
            self._base_timestamp,
            self._last_timestamp,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            self.records,
        )
        batch = Batch(self.partition, data, self.records)
        self.records, self._position = 0, HEADER_SIZE
        return batch

    def _complete(self, codec: int, level: int | None) -> Buffer:
        filled = self._array.data[: self._position]
        if codec:
            data = bytearray(HEADER_SIZE)
            data += compress(codec, filled[HEADER_SIZE:], level)
            return data
        if self._position < _FULL * self._capacity:
            return bytearray(filled)
        self._array = np.empty(self._capacity, np.uint8)
        return filled


def size_alone(columns: Columns, row: int) -> int:
    """Return the uncompressed size of a batch that holds only this row."""
    bound = HEADER_SIZE + _bytes_of(columns, row)
    alone = np.array([row], np.int32)
    _, end = encode(columns, alone, 0, 1, np.empty(bound, np.uint8), HEADER_SIZE, 0, 0)
    return end


def _bytes_of(columns: Columns, row: int) -> int:
    """Return an upper bound for the size of a row's record."""
    keys, values, lists, names, contents = (columns[place] for place in (0, 3, 6, 8, 10))
    size = _FIXED_BYTES + sum(int(part[row + 1]) - int(part[row]) for part in (keys, values))
    if len(lists):
        first, end = int(lists[row]), int(lists[row + 1])
        size += sum(int(part[end]) - int(part[first]) for part in (names, contents))
        size += (end - first) * _HEADER_LENGTHS
    return size
