"""Prints findings: as tables, or as JSON with one object per line.

Tables are printed in pages, so that a segment of any size is shown while it is read. A page
leaves out empty columns.
"""

from __future__ import annotations

import json
import sys
from typing import Final, Protocol

from ottla.cli.dump_log.columns import columns_of, headline_of, summary_text
from ottla.cli.dump_log.findings import Damage, Fields, Finding, Note, Row, Summary
from ottla.cli.output import Column, JsonValue, print_table

PAGE_ROWS: Final = 500


class Printer(Protocol):
    """Receives the findings of one file after another."""

    def begin(self, path: str, what: str, size: int) -> None:
        """Start a file."""
        ...

    def show(self, finding: Finding) -> None:
        """Show one finding of the current file."""
        ...

    def end(self) -> None:
        """End the current file."""
        ...


class JsonPrinter:
    """Prints each finding as a JSON object on one line, with the name of its file."""

    def __init__(self, *, rows: bool) -> None:
        self._rows = rows
        self._path = ""
        self._damages = 0

    def begin(self, path: str, what: str, size: int) -> None:
        self._path = path
        self._damages = 0
        self._print("file", {"type": what, "size": size})

    def show(self, finding: Finding) -> None:
        match finding:
            case Row(kind, fields):
                if self._rows:
                    self._print(kind, fields)
            case Note(text):
                self._print("note", {"text": text})
            case Damage(position, reason, bytes_left, resumes_at):
                self._damages += 1
                self._print(
                    "damage",
                    {
                        "position": position,
                        "reason": reason,
                        "bytesLeft": bytes_left,
                        "resumesAt": resumes_at,
                    },
                )
            case Summary(fields):
                self._print("summary", fields | {"damages": self._damages})

    def end(self) -> None:
        pass

    def _print(self, kind: str, fields: dict[str, JsonValue]) -> None:
        print(json.dumps({"file": self._path, "kind": kind} | fields))


class TablePrinter:
    """Prints tables. A table ends when the page is full or another kind of finding follows."""

    def __init__(self, *, rows: bool, deep: bool) -> None:
        self._rows = rows
        self._deep = deep
        self._kind = ""
        self._page: list[Fields] = []
        self._damages = 0

    def begin(self, path: str, what: str, size: int) -> None:
        self._damages = 0
        _print_styled(f"{path}: {what}, {size:,} bytes", "bold")

    def show(self, finding: Finding) -> None:
        if isinstance(finding, Row):
            if self._rows:
                self._add(finding)
            return
        self._flush()
        match finding:
            case Note(text):
                print(f"  {text}")
            case Damage():
                self._damages += 1
                _print_styled(f"  DAMAGED {damage_text(finding)}", "bold red")
            case Summary(fields):
                print(f"  {summary_text(fields)}; {damages_text(self._damages)}")

    def end(self) -> None:
        self._flush()
        print()

    def _add(self, row: Row) -> None:
        if self._deep and row.kind == "batch":
            self._flush()
            print(f"  {headline_of(row.fields)}")
            return
        if row.kind != self._kind or len(self._page) >= PAGE_ROWS:
            self._flush()
            self._kind = row.kind
        self._page.append(row.fields)

    def _flush(self) -> None:
        if not self._page:
            return
        columns, rows = [], []
        for title, is_number, cell in columns_of(self._kind, self._page[0]):
            cells = [cell(fields) for fields in self._page]
            if any(cells):
                columns.append(Column(title, is_number))
                rows.append(cells)
        print_table(columns, list(zip(*rows, strict=True)))
        self._page.clear()


def damages_text(count: int) -> str:
    """Return the number of damages as text."""
    if not count:
        return "no damage"
    return "damaged in one place" if count == 1 else f"damaged in {count:,} places"


def damage_text(damage: Damage) -> str:
    """Return a description of one damage: position, reason, size, and the next intact batch."""
    text = f"at {damage.position}: {damage.reason}; {damage.bytes_left:,} bytes to the end"
    if damage.resumes_at is not None:
        lost = damage.resumes_at - damage.position
        text += f"; the next intact batch is at {damage.resumes_at}, {lost:,} bytes later"
    return text


def _print_styled(text: str, style: str) -> None:
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text, style=style), soft_wrap=True)
