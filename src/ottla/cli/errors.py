"""Exit codes, and the errors that end a command with a message on stderr."""

from __future__ import annotations

import sys

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
_NARROWEST = 40


class UsageError(Exception):
    """The command line is wrong. The message says what is expected."""


class DataError(Exception):
    """The input data cannot be used. The message says where and why."""


def complain(message: str) -> None:
    """Print an error message on stderr, with `ottla:` before each line.

    On a terminal, long lines are wrapped between words.
    """
    _print_wrapped(message, "ottla: ")


def tell(message: str) -> None:
    """Print a message on stderr, which is for people; stdout is for results.

    On a terminal, long lines are wrapped between words.
    """
    _print_wrapped(message, "")


def _print_wrapped(message: str, prefix: str) -> None:
    from ottla.cli.control_characters import visible  # here, as a broker starts without it

    for line in map(visible, message.splitlines()):
        for part in _wrapped(line, len(prefix)) if sys.stderr.isatty() else [line]:
            print(f"{prefix}{part}", file=sys.stderr, flush=True)


def _wrapped(line: str, prefix: int) -> list[str]:
    import shutil
    import textwrap

    width = max(_NARROWEST, shutil.get_terminal_size().columns - prefix)
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
