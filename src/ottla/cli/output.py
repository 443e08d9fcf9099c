"""Output of commands: tables on a terminal, plain columns in a pipe, JSON on request.

A table fits the terminal: headings are wrapped between words, long ids are shortened, then columns
that are only nice to have are left out. Numbers are never cut. A pipe gets everything, as no one
has to look at it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ottla.cli.control_characters import visible
from ottla.cli.errors import tell

JsonValue: TypeAlias = (
    bool | int | float | str | Sequence["JsonValue"] | dict[str, "JsonValue"] | None
)
Rows: TypeAlias = Sequence[Sequence[str]]
SHORTEST_ID = 12
_SEPARATION = 3  # a border and a space on both sides of a cell


class Column(NamedTuple):
    """The heading of a column. Numbers are right-aligned.

    `is_id`: cells may be shortened in the middle to make the table fit.
    `is_extra`: the column may be left out for the same reason.
    """

    title: str
    is_number: bool = False
    is_id: bool = False
    is_extra: bool = False


def counted(count: int, thing: str) -> str:
    """Return a count with its noun: `1 message`, `2 messages`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def print_json(value: JsonValue) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_headline(facts: Sequence[str]) -> None:
    """Print facts about one thing in one line, or on a terminal in as many lines as it needs."""
    facts = [visible(fact) for fact in facts]
    if not sys.stdout.isatty():
        print("  ".join(facts))
        return
    width, line = shutil.get_terminal_size().columns, ""
    for fact in facts:
        if line and len(line) + 2 + len(fact) > width:
            print(line)
            line = ""
        line += f"  {fact}" if line else fact
    print(line)


def print_table(columns: Sequence[Column], rows: Rows, empty: str | None = None) -> None:
    """Print rows as a table on a terminal, or as aligned columns elsewhere.

    If there are no rows, print only the text `empty`, if given, as a message for people.
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    if not rows and empty is not None:
        tell(empty)
    elif sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        _print_rich(*fitted(columns, rows, width), width)
    else:
        _print_plain(columns, rows)


def fitted(columns: Sequence[Column], rows: Rows, width: int) -> tuple[list[Column], Rows]:
    """Return columns and rows that fit a width: shorten ids first, then leave columns out.

    Headings count with their longest word, because they can be wrapped.
    """
    shown = list(range(len(columns)))
    cells = [list(row) for row in rows]
    widths = _widths(columns, rows, wrapped=True)

    def excess() -> int:
        return sum(widths[i] + _SEPARATION for i in shown) + 1 - width

    for i in sorted((i for i in shown if columns[i].is_id), key=lambda i: -widths[i]):
        least = max(SHORTEST_ID, _longest_word(columns[i].title))
        if excess() > 0 and widths[i] > least:
            widths[i] = max(least, widths[i] - excess())
            for row in cells:
                row[i] = shortened(row[i], widths[i])
    for i in reversed([i for i in shown if columns[i].is_extra]):
        if excess() > 0:
            shown.remove(i)
    return [columns[i] for i in shown], [[row[i] for i in shown] for row in cells]


def _widths(columns: Sequence[Column], rows: Rows, *, wrapped: bool) -> list[int]:
    """Return the width of each column, with headings in one line or wrapped between words."""
    return [
        max(
            _longest_word(column.title) if wrapped else len(column.title),
            *(len(row[i]) for row in rows),
            0,
        )
        for i, column in enumerate(columns)
    ]


def _longest_word(title: str) -> int:
    return max(map(len, title.split()), default=0)


def shortened(text: str, width: int) -> str:
    """Return a text of at most this width: its start and its end with an ellipsis between."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}\u2026{text[len(text) - end :]}"


def _print_rich(columns: Sequence[Column], rows: Rows, width: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold")
    widths = _widths(columns, rows, wrapped=False)
    if sum(widths) + _SEPARATION * len(widths) + 1 > width:
        widths = _widths(columns, rows, wrapped=True)
    for column, needed in zip(columns, widths, strict=True):
        table.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            overflow="fold",
            width=needed if column.is_number else None,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=width).print(table)


def _print_plain(columns: Sequence[Column], rows: Rows) -> None:
    lines = [[column.title for column in columns], *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())
