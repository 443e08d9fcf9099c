"""What a check of the tier finds."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Something about a partition or one of its objects.

    A problem means that records are missing or cannot be trusted. Anything else is worth
    knowing: leftovers of uploads, for example.
    """

    is_problem: bool
    subject: str
    """The name of an object in the partition, or empty for the partition itself."""
    text: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}" if self.subject else self.text


def problem(text: str, subject: str = "") -> Finding:
    """Return a finding that is a problem."""
    return Finding(True, subject.rpartition("/")[2], text)


def remark(text: str, subject: str = "") -> Finding:
    """Return a finding that is not a problem."""
    return Finding(False, subject.rpartition("/")[2], text)
