"""How a command ends badly: one or two lines on stderr, and an exit code."""

from __future__ import annotations

import sys

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130


class UsageError(Exception):
    """The command line asks for something that makes no sense; the message says what would."""


class DataError(Exception):
    """What was fed in cannot be used; the message says where."""


def complain(message: str) -> None:
    """Say on stderr what went wrong; a message may have several lines."""
    for line in message.splitlines():
        print(f"ottla: {line}", file=sys.stderr)
