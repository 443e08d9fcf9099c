"""Errors that end a load. `exit_code` is the exit code of `ottla load`."""

from __future__ import annotations

DONE = 0
FAILED = 1
WRONG_USAGE = 2
DEAD_LETTERS = 3
DATA_LOST = 4


class LoadError(Exception):
    """The load stopped. The table is correct, and the same command continues the load."""

    exit_code = FAILED


class LoadUsageError(LoadError):
    """The options are wrong, or do not match the table. Nothing was changed."""

    exit_code = WRONG_USAGE


class RolledBack(LoadUsageError):
    """The table no longer has rows that the load wrote. `what` happened; nothing was changed."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what}. Continuing would leave these rows out. Bring the table back, or load"
            " everything again with --reset, which deletes the rows that are there"
        )


class DataLost(LoadError):
    """Records were deleted from the topic before they were loaded."""

    exit_code = DATA_LOST
