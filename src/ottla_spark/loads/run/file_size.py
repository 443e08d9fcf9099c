"""Decides how many tasks write a batch, and how many rows a file gets.

The size of a row is learned from the files written so far. Files end at the target size. If a
batch is too small to give each task a file of that size, fewer tasks write it.
"""

from __future__ import annotations

import math

LARGE_ROW = 64 << 10


class FileSize:
    """Plans files of about `target` bytes. `row_size` is the size of a record in the topic."""

    def __init__(self, target: int, row_size: float = 0) -> None:
        self._target = target
        self._row_size = row_size
        self._rows = 0
        self._size = 0

    def learn(self, rows: int, size: int) -> None:
        """Take into account that files with `rows` rows have `size` bytes."""
        self._rows += rows
        self._size += size

    def most_rows_a_file(self) -> int:
        """Return how many rows a file should have; 0 (no limit) before the first files.

        If records are large, their size in the topic decides then: a few of them fill a file.
        """
        if not self._rows or not self._size:
            return 0 if self._row_size < LARGE_ROW else math.ceil(self._target / self._row_size)
        return max(1, math.ceil(self._target * self._rows / self._size))

    def tasks(self, rows: int | None, tasks: int) -> int:
        """Return how many of the tasks should write a batch of about `rows` rows."""
        if rows is None or not self._rows or tasks <= 1:
            return tasks
        from pyspark_ottla.source.task_plan import tasks_for_files

        return tasks_for_files(rows, tasks, self.most_rows_a_file())
