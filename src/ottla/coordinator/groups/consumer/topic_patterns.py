"""The topics that match the regular expressions of subscriptions, kept up to date.

A pattern is matched with all topics when it is first used, and later only with new topics,
however many groups use it. `version` goes up with every change that subscriptions must look at:
topics that are created or deleted, and partitions that are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from ottla.coordinator.groups.consumer.pattern import Pattern
from ottla.coordinator.groups.consumer.pattern_syntax import PatternError
from ottla.metadata.image import MetadataImage
from ottla.model.ids import INTERNAL_TOPICS

MAX_PATTERNS: Final = 1000
MAX_COST: Final = 500_000
"""The most that one round of matching may cost, without cached steps: about 10 ms."""


class HasImage(Protocol):
    """The broker, or whatever else has the current metadata."""

    image: MetadataImage


class TopicPatterns:
    """Patterns in use, each with its topics. The least recently used one is dropped first."""

    def __init__(self, broker: HasImage) -> None:
        self.version = 0
        self._broker = broker
        self._matching: dict[str, tuple[Pattern, frozenset[str]]] = {}

    def matching(self, regex: str) -> frozenset[str]:
        """Return the topics that match. Raise PatternError if it is invalid or costs too much."""
        known = self._matching.pop(regex, None)
        if known is None:
            pattern = Pattern(regex)
            known = pattern, frozenset(_matched(pattern, self._broker.image.topics))
            if len(self._matching) >= MAX_PATTERNS:
                del self._matching[next(iter(self._matching))]
        self._matching[regex] = known
        return known[1]

    def topics_changed(self, created: Sequence[str]) -> None:
        """Follow a change of the image: topics are created or deleted, or get partitions."""
        self.version += 1
        for regex, (pattern, topics) in list(self._matching.items()):
            gone = topics - self._broker.image.topics.keys()
            try:
                added = _matched(pattern, created)
            except PatternError:
                del self._matching[regex]  # the next use tries it again
                continue
            if gone or added:
                self._matching[regex] = pattern, topics.difference(gone).union(added)


def _matched(pattern: Pattern, names: Iterable[str]) -> list[str]:
    """Return the names that match. Unlike in Kafka, internal topics never do."""
    pattern.cost = 0
    matched = []
    for name in names:
        if pattern.matches(name) and name not in INTERNAL_TOPICS:
            matched.append(name)
        if pattern.cost > MAX_COST:
            raise PatternError("to match it with all topics would take too long")
    return matched
