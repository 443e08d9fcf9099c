"""Chooses the partition of each row, and sorts rows by partition.

The partitions of all topics get consecutive numbers, called slots. The key decides the partition
as in Kafka's Java producer. Rows without a key go to one partition until it has got the bytes of
a batch, then to another one at random (KIP-794).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ottla.model.ids import TopicPartition
from pyspark_ottla.sink.encode_loops import (
    ALL_PLACED,
    RANDOM,
    STICKY_LEFT,
    STICKY_PARTITION,
    STICKY_SIZE,
    Ints,
    Longs,
    place,
    sort_by_slot,
)
from pyspark_ottla.sink.rows import Rows

_NO_INTS: Ints = np.empty(0, np.int32)


class NoSuchPartition(ValueError):
    """A row names a partition that does not exist."""


class PartitionRows(NamedTuple):
    """The rows of one partition: `rows[first:end]`."""

    partition: TopicPartition
    rows: Ints
    first: int
    end: int


class Partitioner:
    """Divides rows among partitions. `count_of` returns the number of partitions of a topic."""

    def __init__(
        self, count_of: Callable[[str], int], stay_bytes: int, *, ignore_keys: bool = False
    ) -> None:
        self._count_of = count_of
        self._stay_bytes = stay_bytes
        self._ignore_keys = ignore_keys
        self._sticky: dict[str, Longs] = {}

    def split(self, rows: Rows) -> Iterator[PartitionRows]:
        """Yield the rows of each partition. Raise NoSuchPartition for an unknown partition."""
        counts = np.array([self._count_of(name) for name in rows.names], np.int64)
        ends = np.cumsum(counts)
        starts, order = self._sorted(rows, ends - counts, counts)
        for number in np.flatnonzero(np.diff(starts)):
            topic = int(np.searchsorted(ends, number, side="right"))
            partition = int(number - (ends[topic] - counts[topic]))
            yield PartitionRows(
                TopicPartition(rows.names[topic], partition),
                order,
                int(starts[number]),
                int(starts[number + 1]),
            )

    def _sorted(self, rows: Rows, first_slots: Longs, counts: Longs) -> tuple[Longs, Ints]:
        slots = np.empty(rows.size, np.int32)
        sticky = np.stack([self._state(name) for name in rows.names])
        wrong = place(
            rows.columns,
            rows.topics,
            rows.partitions,
            rows.partition_nulls,
            first_slots,
            counts,
            sticky,
            self._stay_bytes,
            self._ignore_keys,
            slots,
        )
        if wrong != ALL_PLACED:
            raise NoSuchPartition(_wrong_partition(rows, wrong, counts))
        self._sticky.update(zip(rows.names, sticky, strict=True))
        starts = np.empty(int(counts.sum()) + 1, np.int64)
        order = np.empty(rows.size, np.int32)
        sort_by_slot(slots, starts, order)
        return starts, order

    def _state(self, topic: str) -> Longs:
        if topic not in self._sticky:
            state = np.zeros(STICKY_SIZE, np.int64)
            state[STICKY_PARTITION] = np.iinfo(np.int64).max  # no partition yet
            state[STICKY_LEFT] = 0
            state[RANDOM] = random.getrandbits(63)
            self._sticky[topic] = state
        return self._sticky[topic]


def _wrong_partition(rows: Rows, row: int, counts: Longs) -> str:
    topic = int(rows.topics[row]) if len(rows.topics) else 0
    return (
        f"a row is for partition {rows.partitions[row]} of topic {rows.names[topic]}, which has"
        f" partitions 0 to {counts[topic] - 1}: correct the column partition, or add partitions"
    )
