"""Output of commands: tables on a terminal, plain columns in a pipe, JSON on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

JsonValue: TypeAlias = (
    bool | int | float | str | Sequence["JsonValue"] | dict[str, "JsonValue"] | None
)


class Column(NamedTuple):
    """The heading of a column. Numbers are right-aligned."""

    title: str
    is_number: bool = False


def counted(count: int, thing: str) -> str:
    """Return a count with its noun: `1 message`, `2 messages`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def print_json(value: JsonValue) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a table on a terminal, or as aligned columns elsewhere."""
    if sys.stdout.isatty():
        _print_rich(columns, rows)
    else:
        _print_plain(columns, rows)


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold")
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.is_number else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _print_plain(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    lines = [[column.title for column in columns], *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())
