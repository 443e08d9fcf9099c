"""The table of the Spark benchmark, for the terminal and for docs/performance.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

from harness.metrics import Metric
from harness.report import figure, goal, times
from harness.results import verdict
from spark.connector import VERSION

BEGIN, END = "<!-- bench-spark:begin -->", "<!-- bench-spark:end -->"
HEADINGS = ("work", "compared with", "Ottla", "ratio", "at least", "aim", "verdict")


@dataclass
class Measured:
    """One row: the figures of each round, of Ottla and of the other system."""

    metric: Metric
    other: Sequence[float]
    ours: Sequence[float]

    @property
    def ratio(self) -> float | None:
        return median(self.ours) / median(self.other) if self.ours and self.other else None

    def texts(self) -> tuple[str, ...]:
        """Return the row as text."""
        metric, ratio = self.metric, self.ratio
        return (
            metric.label,
            figure(median(self.other) if self.other else None, metric.unit),
            figure(median(self.ours) if self.ours else None, metric.unit),
            "" if ratio is None else times(ratio),
            goal(metric, metric.at_least),
            goal(metric, metric.aim),
            verdict(metric, ratio),
        )


def setting() -> str:
    """Return the date, the machine and the versions."""
    memory = psutil.virtual_memory().total / (1 << 30)
    return (
        f"Measured {datetime.now(UTC).date().isoformat()} on {os.cpu_count()} cores,"
        f" {memory:.0f} GiB of memory, {platform.system()} {platform.machine()}:"
        f" Python {platform.python_version()}, pyspark {version('pyspark')},"
        f" Spark's Kafka connector {VERSION}, Ottla {version('ottla')}."
    )


def print_table(console: Console, rows: Sequence[Measured]) -> None:
    """Print the table."""
    table = Table(*HEADINGS, title="Spark: the source ottla and Spark's own Kafka connector")
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for row in rows:
        table.add_row(*row.texts())
    console.print(table)


def markdown(rows: Sequence[Measured], remarks: Sequence[str]) -> str:
    """Return the table as Markdown."""
    lines = [setting(), "", "| " + " | ".join(HEADINGS) + " |", "|---|" + "---:|" * 5 + "---|"]
    lines += ["| " + " | ".join(row.texts()) + " |" for row in rows]
    lines += ["", *(f"- {remark}" for remark in remarks)] if remarks else []
    return "\n".join(lines) + "\n"
