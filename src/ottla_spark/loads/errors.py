"""How a load ends other than well; `exit_code` is that of `ottla load`."""

from __future__ import annotations

DONE = 0
FAILED = 1
WRONG_USAGE = 2
DEAD_LETTERS = 3
DATA_LOST = 4


class LoadError(Exception):
    """The load stopped; what is in the table stays right, and the same command goes on there."""

    exit_code = FAILED


class LoadUsageError(LoadError):
    """What was asked for makes no sense, or not with this table; nothing was touched."""

    exit_code = WRONG_USAGE


class DataLost(LoadError):
    """Records that were not loaded yet are gone from the topic."""

    exit_code = DATA_LOST
