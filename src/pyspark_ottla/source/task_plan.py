"""Divides ranges of offsets into Spark tasks: splits large ranges, packs small ones together.

Splitting works as in Spark's own source. `maxRecordsPerPartition` splits every range into
pieces of at most that size. Then `minPartitions` splits the large ones in proportion, until
there are about that many. Without these options no range is split, so the records of one
partition stay in order in one task.

`maxBytesPerPartition` splits ranges by the average size of their records. It is specific to Ottla.

Packing is specific to Ottla. A Spark task that reads and writes takes 25 ms of CPU besides its
records, as much as reading 100,000 small ones. So small ranges share a task: there is one for every
SMALL_TASK offsets until each core has one, one for every MEDIUM_TASK offsets up to FEW_TASKS, and
beyond that one for every LARGE_TASK. The cores are those of this machine, because the
number of executors is not known here. There are never fewer than `minPartitions`.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from ottla.model.ids import TopicPartition
from pyspark_ottla.fetch.offset_range import OffsetRange

SMALL_TASK = 20_000
MEDIUM_TASK = 100_000
LARGE_TASK = 250_000
CORES = os.cpu_count() or 1
FEW_TASKS = 4 * CORES
SMALL_SHARE = 4


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """The ranges that one Spark task reads."""

    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True)
class TaskBytes:
    """The most bytes of a task, and the average bytes of an offset in each partition."""

    limit: int
    bytes_per_offset: Mapping[TopicPartition, float]

    def of(self, piece: OffsetRange) -> float:
        """Return about how many bytes a range has; 0 if that is not known."""
        place = TopicPartition(piece.topic, piece.partition)
        return size_of(piece) * self.bytes_per_offset.get(place, 0.0)

    def split(self, pieces: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return pieces of at most about `limit` bytes, with at least one offset each."""
        return [
            part
            for piece in pieces
            for part in _split(piece, min(size_of(piece), -(-int(self.of(piece)) // self.limit)))
        ]

    def pack(self, pieces: Sequence[OffsetRange], least: int) -> list[ReadTask]:
        """Pack pieces into tasks of at most about `limit` bytes.

        Pieces of more than half the limit have a task of their own. The others are packed for
        half the limit on average, so no task has more than the limit.
        """
        large = [piece for piece in pieces if 2 * self.of(piece) > self.limit]
        small = [piece for piece in pieces if 2 * self.of(piece) <= self.limit]
        total = int(sum(map(self.of, small)))
        tasks = task_count(small, max(least - len(large), -(-2 * total // self.limit)))
        packed = pack_ranges(small, tasks, self.of if total else None)
        return [ReadTask((piece,)) for piece in large] + packed


def plan_tasks(
    ranges: Sequence[OffsetRange],
    min_partitions: int | None,
    max_records: int | None,
    task_bytes: TaskBytes | None = None,
) -> list[ReadTask]:
    """Return the tasks that read these ranges, each offset once. Empty ranges are left out."""
    pieces = split_ranges(ranges, min_partitions, max_records)
    if task_bytes is not None:
        pieces = task_bytes.split(pieces)
    if max_records is not None:
        return [ReadTask((piece,)) for piece in pieces]
    if task_bytes is None:
        return pack_ranges(pieces, task_count(pieces, min_partitions or 1))
    return task_bytes.pack(pieces, min_partitions or 1)


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Split ranges as the options ask. The pieces cover the same offsets, without overlap."""
    pieces = [piece for piece in ranges if size_of(piece) > 0]
    if max_records is not None:
        pieces = [
            part for piece in pieces for part in _split(piece, -(-size_of(piece) // max_records))
        ]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _split_in_proportion(pieces, min_partitions)
    return pieces


def task_count(ranges: Sequence[OffsetRange], least: int) -> int:
    """Return how many tasks should read these ranges."""
    total = sum(size_of(piece) for piece in ranges)
    few = max(min(-(-total // SMALL_TASK), CORES), min(-(-total // MEDIUM_TASK), FEW_TASKS))
    return min(len(ranges), max(least, few, -(-total // LARGE_TASK)))


def tasks_for_files(rows: int, tasks: int, rows_a_file: int) -> int:
    """Return how many of the tasks should write these rows: fewer if files would be too small."""
    if rows * SMALL_SHARE >= rows_a_file * tasks:
        return tasks
    return max(1, -(-rows // rows_a_file))


def pack_ranges(
    ranges: Sequence[OffsetRange], tasks: int, weight: Callable[[OffsetRange], float] | None = None
) -> list[ReadTask]:
    """Pack ranges into at most `tasks` tasks of about the same size, the largest task first.

    The size of a range is the number of its offsets, unless `weight` says otherwise.
    """
    if not ranges:
        return []
    weight = weight or size_of
    packs: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    heap: list[tuple[float, int]] = [(0, index) for index in range(tasks)]
    for piece in sorted(ranges, key=weight, reverse=True):
        size, index = heapq.heappop(heap)
        packs[index].append(piece)
        heapq.heappush(heap, (size + weight(piece), index))
    weigh = weight
    packs.sort(key=lambda pack: sum(map(weigh, pack)), reverse=True)
    return [ReadTask(tuple(sorted(pack, key=_sort_key))) for pack in packs if pack]


def size_of(piece: OffsetRange) -> int:
    """Return how many offsets a range has. It is negative if the range ends before its start."""
    return piece.end - piece.start


def _sort_key(piece: OffsetRange) -> tuple[str, int, int]:
    return piece.topic, piece.partition, piece.start


def _split_in_proportion(pieces: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    total = sum(size_of(piece) for piece in pieces)
    whole = {piece for piece in pieces if _parts(size_of(piece), total, wanted) == 1}
    rest = total - sum(size_of(piece) for piece in whole)
    wanted_of_rest = max(wanted - len(whole), 1)
    found: list[OffsetRange] = []
    for piece in pieces:
        parts = 1 if piece in whole else _parts(size_of(piece), rest, wanted_of_rest)
        found += _split(piece, parts)
    return found


def _parts(size: int, total: int, wanted: int) -> int:
    return max((2 * size * wanted + total) // (2 * total), 1)


def _split(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    size, parts = size_of(piece), max(1, parts)
    bounds = [piece.start + size * part // parts for part in range(parts + 1)]
    return [replace(piece, start=start, end=end) for start, end in pairwise(bounds) if end > start]
