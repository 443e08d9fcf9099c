"""Errors of logs that are more than a failed call: damaged files, and no directory left.

A damaged file is not a failed disk. So only its log goes offline, and the other logs of the
directory go on (`LogStore.handle_error`). It is an OSError, because code that uses a log
handles those already.
"""

from __future__ import annotations

from errno import EBADMSG


class DamagedLog(OSError):
    """A segment holds something that is no batch. `filename` is its file."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(EBADMSG, reason, path)

    def __str__(self) -> str:
        return f"{self.filename} is damaged {self.strerror}"


class LogDirsFailed(Exception):
    """No log directory is left, or the one with the metadata is lost, so the broker ends.

    Not an OSError: whoever handles a failed connection must not take it for one.
    """


class CorruptIndex(DamagedLog):
    """An index contradicts its segment. It can be rebuilt."""
