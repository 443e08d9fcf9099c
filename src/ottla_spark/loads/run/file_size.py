"""Decides how many tasks write a batch, and how many rows a file gets.

The size of a row is learned from the files written so far. Files end at the target size. If a
batch is too small to give each task a file of that size, fewer tasks write it.
"""

from __future__ import annotations

import math


class FileSize:
    """Plans files of about `target` bytes."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._rows = 0
        self._size = 0

    def learn(self, rows: int, size: int) -> None:
        """Take into account that files with `rows` rows have `size` bytes."""
        self._rows += rows
        self._size += size

    def most_rows_a_file(self) -> int:
        """Return how many rows a file should have; 0 (no limit) before the first files."""
        if not self._rows or not self._size:
            return 0
        return max(1, math.ceil(self._target * self._rows / self._size))

    def tasks(self, rows: int | None, tasks: int) -> int:
        """Return how many of the tasks should write a batch of about `rows` rows."""
        if rows is None or not self._rows or tasks <= 1:
            return tasks
        from pyspark_ottla.source.task_plan import tasks_for_files

        return tasks_for_files(rows, tasks, self.most_rows_a_file())
