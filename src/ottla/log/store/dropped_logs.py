"""Keeps the last reference to logs that are gone, so that their memory is freed in steps.

A log is some dozens of objects, and whoever works on all logs has a list of them for a while. If a
topic of 10,000 partitions is deleted meanwhile, the end of that list would free them all at once,
which holds the loop for 50 ms or more.
"""

from __future__ import annotations

from typing import Final

from ottla.log.log import Log
from ottla.model.steps import Steps

LOGS_A_STEP: Final = 20


class DroppedLogs:
    """Logs that are not managed any more. They are kept for a round or two of `free`."""

    __slots__ = ("_earlier", "_logs")

    def __init__(self) -> None:
        self._logs: list[Log] = []
        self._earlier: list[Log] = []
        """Logs that were dropped before the last round."""

    def add(self, log: Log) -> None:
        self._logs.append(log)

    def free(self) -> Steps[None]:
        """Free the logs that were dropped before the last round."""
        earlier = self._earlier
        while earlier:
            del earlier[-LOGS_A_STEP:]
            yield
        self._earlier, self._logs = self._logs, []
