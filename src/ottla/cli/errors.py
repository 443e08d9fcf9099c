"""Exit codes, and the errors that end a command with a message on stderr."""

from __future__ import annotations

import sys

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130


class UsageError(Exception):
    """The command line is wrong. The message says what is expected."""


class DataError(Exception):
    """The input data cannot be used. The message says where and why."""


def complain(message: str) -> None:
    """Print an error message on stderr, with `ottla:` before each line."""
    for line in message.splitlines():
        print(f"ottla: {line}", file=sys.stderr)
