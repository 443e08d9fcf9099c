"""What is wrong with a pipeline file, each with the line that says it.

Everything that looks at a file adds to one `Problems`, so that a person sees all mistakes at
once. A problem's `where` is the path of keys that leads to it, such as `steps.big.sql`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

WHOLE_FILE = 0


class Problem(NamedTuple):
    """One mistake: the line (from 1; WHOLE_FILE when no line is to blame), the keys, the words."""

    line: int
    where: str
    message: str

    def text(self, file: str) -> str:
        """One line for a person, in the form editors can jump to."""
        place = file if self.line == WHOLE_FILE else f"{file}:{self.line}"
        return ": ".join(part for part in (place, self.where, self.message) if part)


class Problems:
    """A growing list of problems, in order of their lines."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def add(self, line: int, where: str, message: str) -> None:
        """Note a problem; the same one twice is one."""
        self._found[Problem(line, where, message)] = None

    def __iter__(self) -> Iterator[Problem]:
        return iter(sorted(self._found, key=lambda problem: problem.line))

    def __len__(self) -> int:
        return len(self._found)

    def about(self, prefix: str) -> bool:
        """Whether something is wrong at these keys or below them."""
        return any((found.where + ".").startswith(prefix + ".") for found in self._found)


class PipelineError(Exception):
    """The pipeline cannot be run as it is written; `problems` says why, all at once."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = list(problems)
        super().__init__("\n".join(problem.text(file) for problem in self.problems))


def closest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` when a known word is near, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def listed(words: Iterable[str]) -> str:
    """Words for a sentence: `a, b and c`."""
    *most, last = list(words) or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last
