"""Sets of partitions by topic: the form of all assignments in this package.

Topics are keyed by id, so a topic that was deleted and created again is another topic.
An assignment never changes. A different one is a new object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Topic id to partitions. Every topic has at least one partition."""

NO_PARTITIONS: Partitions = {}


def partition_count(partitions: Partitions) -> int:
    """Return the number of partitions in all topics."""
    return sum(map(len, partitions.values()))


def from_pairs(pairs: Iterable[tuple[bytes, Iterable[int]]]) -> Partitions:
    """Return the partitions of a list of topics. A topic may be listed twice, or without any."""
    found: dict[bytes, frozenset[int]] = {}
    for topic_id, numbers in pairs:
        chosen = frozenset(numbers)
        if chosen:
            found[topic_id] = found[topic_id] | chosen if topic_id in found else chosen
    return found
