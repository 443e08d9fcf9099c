"""From offsets to Spark tasks: split what is large, pack what is small. Pure functions.

Splitting follows Spark's own source: `maxRecordsPerPartition` cuts every range to at most
that size, then `minPartitions` cuts the large ones in proportion until there are about that
many. Without either, no range is cut: records of one partition stay in order in one task.

Packing is Ottla's own. A Spark task costs tens of milliseconds, whatever it reads, so small
ranges share tasks: up to FEW_TASKS tasks each is worth SMALL_TASK offsets, beyond that
LARGE_TASK. What Spark runs at the same time is not known here, and it does not matter then.
`minPartitions` is kept: packing never goes below it.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from pyspark_ottla.ranges import OffsetRange, ReadTask

SMALL_TASK = 20_000
LARGE_TASK = 250_000
FEW_TASKS = 4 * (os.cpu_count() or 1)
SMALL_SHARE = 4


def plan_tasks(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[ReadTask]:
    """The tasks that read these ranges: each offset once, empty ranges left out."""
    pieces = split_ranges(ranges, min_partitions, max_records)
    if max_records is not None:
        return [ReadTask((piece,)) for piece in pieces]
    return pack_ranges(pieces, task_count(pieces, min_partitions or 1))


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """The ranges cut as the options ask; together they cover what was given, without overlap."""
    pieces = [piece for piece in ranges if size_of(piece) > 0]
    if max_records is not None:
        pieces = [
            part for piece in pieces for part in _cut(piece, -(-size_of(piece) // max_records))
        ]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _cut_in_proportion(pieces, min_partitions)
    return pieces


def task_count(ranges: Sequence[OffsetRange], least: int) -> int:
    """How many tasks these ranges are worth."""
    total = sum(size_of(piece) for piece in ranges)
    few = min(-(-total // SMALL_TASK), FEW_TASKS)
    return min(len(ranges), max(least, few, -(-total // LARGE_TASK)))


def tasks_for_files(rows: int, tasks: int, rows_a_file: int) -> int:
    """How many of the tasks should write so many rows: fewer where files would be far too small."""
    if rows * SMALL_SHARE >= rows_a_file * tasks:
        return tasks
    return max(1, -(-rows // rows_a_file))


def pack_ranges(ranges: Sequence[OffsetRange], tasks: int) -> list[ReadTask]:
    """The ranges in at most `tasks` tasks of about the same size, the largest task first."""
    if not ranges:
        return []
    packs: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    heap = [(0, index) for index in range(tasks)]
    for piece in sorted(ranges, key=size_of, reverse=True):
        size, index = heapq.heappop(heap)
        packs[index].append(piece)
        heapq.heappush(heap, (size + size_of(piece), index))
    packs.sort(key=lambda pack: sum(map(size_of, pack)), reverse=True)
    return [ReadTask(tuple(sorted(pack, key=_place))) for pack in packs if pack]


def size_of(piece: OffsetRange) -> int:
    """How many offsets a range has; below zero for one that ends before it starts."""
    return piece.end - piece.start


def _place(piece: OffsetRange) -> tuple[str, int, int]:
    return piece.topic, piece.partition, piece.start


def _cut_in_proportion(pieces: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    total = sum(size_of(piece) for piece in pieces)
    whole = {piece for piece in pieces if _parts(size_of(piece), total, wanted) == 1}
    rest = total - sum(size_of(piece) for piece in whole)
    wanted_of_rest = max(wanted - len(whole), 1)
    found: list[OffsetRange] = []
    for piece in pieces:
        parts = 1 if piece in whole else _parts(size_of(piece), rest, wanted_of_rest)
        found += _cut(piece, parts)
    return found


def _parts(size: int, total: int, wanted: int) -> int:
    return max((2 * size * wanted + total) // (2 * total), 1)


def _cut(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    size = size_of(piece)
    bounds = [piece.start + size * part // parts for part in range(parts + 1)]
    return [replace(piece, start=start, end=end) for start, end in pairwise(bounds) if end > start]
