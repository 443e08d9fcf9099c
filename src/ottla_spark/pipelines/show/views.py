"""Prints pictures and progress: boxes and a live table on a terminal, else plain lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla_spark.pipelines.check.pipeline_check import Checked
from ottla_spark.pipelines.run.pipeline_run import View
from ottla_spark.pipelines.run.progress import NO_BATCH, QueryProgress
from ottla_spark.pipelines.show.picture import Box, draw, duration_words, heading

if TYPE_CHECKING:
    from rich.table import Table
    from rich.tree import Tree

PLAIN_LINE_EVERY_S: Final = 5.0
_COLOURS: Final = {"sink": "green", "step": "cyan", "source": "yellow"}
_TITLES: Final = ("sink", "batch", "records read", "records/s", "lag", "state rows")


def print_picture(checked: Checked) -> None:
    """Print the picture of a pipeline."""
    if sys.stdout.isatty():
        _print_boxes(checked)
        return
    print(heading(checked))
    for box in draw(checked):
        print()
        _print_lines(box, 0)


def _print_lines(box: Box, depth: int) -> None:
    indent = "  " * depth
    print(f"{indent}{box.kind} {box.name}" + (" (see above)" if box.is_repeated else ""))
    if box.is_repeated:
        return
    print(f"{indent}  | {box.says}")
    for name, kind in box.columns:
        print(f"{indent}  |   {name}: {kind}")
    for below in box.inputs:
        _print_lines(below, depth + 1)


def _print_boxes(checked: Checked) -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    console = Console()
    tree = Tree(Text(heading(checked), style="bold"), guide_style="dim")
    for box in draw(checked):
        _add_box(tree, box)
    console.print(tree)


def _add_box(tree: Tree, box: Box) -> None:
    from rich.panel import Panel
    from rich.text import Text

    colour = _COLOURS[box.kind]
    if box.is_repeated:
        tree.add(Text(f"{box.kind} {box.name}, as above", style=f"dim {colour}"))
        return
    lines = Text(box.says)
    for name, kind in box.columns:
        lines.append(f"\n{name} ", style="bold")
        lines.append(kind, style="dim")
    title = Text(f"{box.kind} {box.name}", style=f"bold {colour}")
    branch = tree.add(Panel(lines, title=title, title_align="left", expand=False))
    for below in box.inputs:
        _add_box(branch, below)


def summary_row(query: QueryProgress) -> tuple[str, ...]:
    """Return the progress of a query as the cells of a table row."""
    return (
        query.sink,
        "-" if query.batch == NO_BATCH else str(query.batch),
        f"{query.rows:,}",
        "-" if query.rows_per_second is None else f"{query.rows_per_second:,.0f}",
        "-" if query.lag is None else f"{query.lag:,}",
        "-" if query.state_rows is None else f"{query.state_rows:,}",
    )


def progress_json(query: QueryProgress) -> dict[str, object]:
    """Return the progress of a query as JSON."""
    return {
        "sink": query.sink,
        "batch": None if query.batch == NO_BATCH else query.batch,
        "batches": query.batches,
        "records_read": query.rows,
        "records_per_second": query.rows_per_second,
        "lag": query.lag,
        "source_metrics": query.metrics,
        "state_rows": query.state_rows,
        "watermark": query.watermark,
    }


def table_of(queries: Sequence[QueryProgress], title: str | None = None) -> Table:
    """Return a table with a row for each query."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold", title=title, title_justify="left")
    for index, name in enumerate(_TITLES):
        table.add_column(name, justify="left" if index == 0 else "right")
    for query in queries:
        table.add_row(*(Text(cell) for cell in summary_row(query)))
    return table


class LiveView(View):
    """A live table on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(), refresh_per_second=4, transient=True)

    def started(self, queries: Sequence[QueryProgress]) -> None:
        self._live.start()

    def polled(self, queries: Sequence[QueryProgress]) -> None:
        self._live.update(table_of(queries))

    def waiting(self, seconds: float) -> None:
        from rich.text import Text

        self._live.update(Text(f"the next run starts in {duration_words(int(seconds) * 1000)}"))

    def close(self) -> None:
        """Restore the terminal."""
        self._live.stop()


class LineView(View):
    """Prints a line for a query every few seconds, for logs."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def batch(self, query: QueryProgress) -> None:
        now = time.monotonic()
        if now - self._said.get(query.sink, -PLAIN_LINE_EVERY_S) >= PLAIN_LINE_EVERY_S:
            self._said[query.sink] = now
            _, batch, read, rate, lag, _ = summary_row(query)
            told = f"batch {batch}, {read} records read, {rate} records/s, lag {lag}"
            print(f"{query.sink}: {told}", flush=True)

    def close(self) -> None:
        """Do nothing: no terminal to restore."""


class JsonView(View):
    """Prints a JSON document for each batch, one per line."""

    def batch(self, query: QueryProgress) -> None:
        print(json.dumps({"event": "batch", **progress_json(query)}), flush=True)

    def close(self) -> None:
        """Do nothing: no terminal to restore."""
