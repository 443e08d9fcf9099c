"""Which partitions of which topics: the shape all assignments have in this package.

Topics are keyed by id, so a topic that was deleted and made again is another topic.
An assignment is never changed once it is made: whoever wants another makes another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Topic id to the partitions of it; no topic is there without a partition."""

NO_PARTITIONS: Partitions = {}


def partition_count(partitions: Partitions) -> int:
    """How many partitions there are in all."""
    return sum(map(len, partitions.values()))


def from_pairs(pairs: Iterable[tuple[bytes, Iterable[int]]]) -> Partitions:
    """The partitions of a list of topics; a topic named twice is one, an empty one is none."""
    found: dict[bytes, frozenset[int]] = {}
    for topic_id, numbers in pairs:
        chosen = frozenset(numbers)
        if chosen:
            found[topic_id] = found[topic_id] | chosen if topic_id in found else chosen
    return found
