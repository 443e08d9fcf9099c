"""How many files a batch becomes, so that they are neither many and small nor huge.

The size of a row is learnt from the files written so far. A batch whose share for each task
would be far below the wanted size is written by fewer tasks; files end at the wanted size.
"""

from __future__ import annotations

import math


class Sizing:
    """Aims at files of `target` bytes."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._rows = 0
        self._size = 0

    def learn(self, rows: int, size: int) -> None:
        """Files with so many rows took so many bytes."""
        self._rows += rows
        self._size += size

    def most_rows_a_file(self) -> int:
        """Where a file should end; 0, for no limit, while nothing is known."""
        if not self._rows or not self._size:
            return 0
        return max(1, math.ceil(self._target * self._rows / self._size))

    def tasks(self, rows: int | None, tasks: int) -> int:
        """How many tasks should write a batch of about so many rows."""
        if rows is None or not self._rows or tasks <= 1:
            return tasks
        from pyspark_ottla.planning import tasks_for_files

        return tasks_for_files(rows, tasks, self.most_rows_a_file())
