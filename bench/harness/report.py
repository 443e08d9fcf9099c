"""The comparison as a table on the terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.metrics import Better, Metric
from harness.problem import BenchError
from harness.results import Results, verdict

GOALS = ("at least", "aim", "verdict")
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
CLUSTER_BEGIN, CLUSTER_END = "<!-- bench-cluster:begin -->", "<!-- bench-cluster:end -->"
_COLOURS = {"aim reached": "green", "reached": "yellow"}


def rows(results: Results, sizes: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return one row of text per measured figure. `sizes` stand in the labels."""
    return [_row(results, metric, sizes) for metric in results.measured()]


def headings(peer: str) -> tuple[str, ...]:
    """Return the heading of each column. Only Kafka's figures are a goal."""
    return ("work", peer, "Ottla", "ratio", *(GOALS if peer == "Kafka" else ()))


def _row(results: Results, metric: Metric, sizes: Mapping[str, str]) -> tuple[str, ...]:
    ratio = results.ratio(metric.key)
    judged = results.value("Ottla", metric.key) if metric.own else ratio
    goals = goal(metric, metric.at_least), goal(metric, metric.aim), verdict(metric, judged)
    return (
        metric.label.format(**sizes),
        figure(results.value(results.peer, metric.key), metric.unit),
        figure(results.value("Ottla", metric.key), metric.unit),
        "" if ratio is None else times(ratio),
        *(goals if results.peer == "Kafka" else ()),
    )


def figure(value: float | None, unit: str) -> str:
    """Return a number with its significant digits; empty for None."""
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


def times(ratio: float) -> str:
    """Return a ratio as text."""
    return f"{ratio:.2f}x" if ratio >= 0.2 else f"{ratio:.3f}x"


def goal(metric: Metric, wanted: float | None) -> str:
    """Return the goal as text."""
    if wanted is None:
        return ""
    sign = "≥" if metric.better is Better.HIGHER else "≤"
    if metric.own:
        return f"{sign} {wanted:g} {metric.unit}"
    return f"{sign} {times(wanted)}"


def print_table(console: Console, table_rows: list[tuple[str, ...]], results: Results) -> None:
    """Print the table with coloured verdicts, and the remarks under it."""
    peer = results.peer
    table = Table(*headings(peer), title=f"Ottla and {peer} (ratio: Ottla / {peer})")
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for row in table_rows:
        colour = _COLOURS.get(row[-1], "red" if peer == "Kafka" else "default")
        table.add_row(*row[:-1], f"[{colour}]{row[-1]}[/]" if row[-1] else "")
    console.print(table)
    for remark in results.remarks:
        console.print(f"- {remark}", markup=False, highlight=False)


def markdown(table_rows: list[tuple[str, ...]], setting: dict[str, str], remarks: list[str]) -> str:
    """Return the table as Markdown, with the date, the machine and the versions."""
    versions = ", ".join(
        f"{name} {text}" for name, text in setting.items() if name not in ("date", "machine")
    )
    lines = [f"Measured {setting['date']} on {setting['machine']}: {versions}.", ""]
    lines.append("| " + " | ".join(headings("Kafka")) + " |")
    lines.append("|---|" + "---:|" * 5 + "---|")
    lines += ["| " + " | ".join(row) + " |" for row in table_rows]
    if remarks:
        lines += ["", *(f"- {remark.splitlines()[0]}" for remark in remarks)]
    return "\n".join(lines) + "\n"


def halves_around_table(path: Path, begin: str = BEGIN, end: str = END) -> tuple[str, str]:
    """Return the text before and after the two markers of the file. Raise BenchError without."""
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from None
    if begin not in page or end not in page:
        raise BenchError(f"{path} has no {begin} and {end} to write between")
    before, rest = page.split(begin, 1)
    return before, rest.split(end, 1)[1]


def write_markdown(path: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace the text between the two markers of the file."""
    before, after = halves_around_table(path, begin, end)
    path.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


def write_json(path: Path, results: Results, setting: dict[str, str]) -> None:
    """Write all measurements, round by round, as JSON."""
    document = {
        "setting": setting,
        "figures": results.figures,
        "ratios": {metric.key: results.ratio(metric.key) for metric in results.measured()},
        "details": results.details,
        "remarks": results.remarks,
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
