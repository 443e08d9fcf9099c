"""The progress of a load on stderr: messages, and a bar with rows/s, lag and files.

The bar is drawn only on a terminal. Nothing goes to stdout, which is for the result.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from ottla_spark.loads.run.listener import Listener

if TYPE_CHECKING:
    from ottla_spark.loads.run.tally import Tally

_FIELDS = (
    "{task.fields[rows]} rows  {task.fields[rate]}/s"
    "  lag {task.fields[lag]}  files {task.fields[files]}"
)


class LoadView(Listener):
    """Shows the events of a running load."""

    def __init__(self) -> None:
        # A terminal gets lines that are wrapped between words, a pipe gets whole lines.
        whole = not sys.stderr.isatty()
        self._console = Console(stderr=True, highlight=False, soft_wrap=whole)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(line, markup=False)

    def started(self, records: int) -> None:
        """Draw the bar."""
        self._began = time.monotonic()
        if not sys.stderr.isatty():
            return
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=30),
            TextColumn(_FIELDS),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(
            "", total=records, rows="0", rate="-", lag=f"{records:,}", files="0"
        )
        self._bar.start()

    def progress(self, tally: Tally, lag: int) -> None:
        """Move the bar."""
        if self._bar is None or self._task is None:
            return
        rate = tally.records / max(time.monotonic() - self._began, 0.001)
        self._bar.update(
            self._task,
            completed=tally.records,
            total=tally.records + lag,
            rows=f"{tally.rows:,}",
            rate=f"{rate:,.0f}",
            lag=f"{lag:,}",
            files=f"{tally.files:,}",
        )
