"""The problems of a pipeline file, with line numbers.

All checks add to one `Problems`, so that people see all mistakes at once. `where` is the path of
keys to the problem, such as `steps.big.sql`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

WHOLE_FILE = 0


class Problem(NamedTuple):
    """One mistake: its line (from 1; WHOLE_FILE if it has none), its keys, the message."""

    line: int
    where: str
    message: str

    def text(self, file: str) -> str:
        """Return one line of text, in the form that editors can jump to."""
        place = file if self.line == WHOLE_FILE else f"{file}:{self.line}"
        return ": ".join(part for part in (place, self.where, self.message) if part)


class Problems:
    """A list of problems, sorted by line."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def add(self, line: int, where: str, message: str) -> None:
        """Add a problem. The same problem twice counts once."""
        self._found[Problem(line, where, message)] = None

    def __iter__(self) -> Iterator[Problem]:
        return iter(sorted(self._found, key=lambda problem: problem.line))

    def __len__(self) -> int:
        return len(self._found)

    def about(self, prefix: str) -> bool:
        """Return whether there is a problem at these keys or below them."""
        return any((found.where + ".").startswith(prefix + ".") for found in self._found)


class PipelineError(Exception):
    """The pipeline file has problems; `problems` lists all of them."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = list(problems)
        super().__init__("\n".join(problem.text(file) for problem in self.problems))


def closest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` if a known word is similar, else an empty text."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def listed(words: Iterable[str]) -> str:
    """Return words for a sentence: `a, b and c`."""
    *most, last = list(words) or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last
