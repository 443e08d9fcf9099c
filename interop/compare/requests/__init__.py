"""The requests of the comparison, a file for each area. They are sent in the order of `ALL`."""

from __future__ import annotations

from collections.abc import Iterator

from compare.case import Case
from compare.requests import (
    cluster,
    configs,
    consumer_groups,
    fetches,
    groups,
    offsets,
    produces,
    quorum,
    topic_changes,
    topics,
    transactions,
)

ALL = (
    topics,
    produces,
    offsets,
    fetches,
    cluster,
    quorum,
    configs,
    groups,
    consumer_groups,
    topic_changes,
    transactions,
)


def all_cases() -> list[Case]:
    """Return all cases, in the order in which they are sent."""
    return list(_cases())


def _cases() -> Iterator[Case]:
    for area in ALL:
        yield from area.cases()
