"""Which topics the regular expressions of subscriptions match, kept up with the metadata.

A pattern is matched with all topics when it is first asked for, and from then on only with
the topics that are created, however many groups use it. `version` counts what subscriptions
have to look at: topics that come and go, and partitions that are added.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.coordinator.consumer.pattern import Pattern
from ottla.coordinator.consumer.pattern_syntax import PatternError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.ids import INTERNAL_TOPICS

MAX_PATTERNS: Final = 1000
MAX_COST: Final = 500_000
"""What matching may cost at a time, beyond steps that are known: some ten milliseconds."""


class TopicPatterns:
    """Patterns in use, each with the topics it matches; the one used longest ago goes first."""

    def __init__(self, image: MetadataImage) -> None:
        self.version = 0
        self._image = image
        self._matching: dict[str, tuple[Pattern, frozenset[str]]] = {}

    def matching(self, regex: str) -> frozenset[str]:
        """The topics an expression matches; PatternError when it is none, or costs too much."""
        known = self._matching.pop(regex, None)
        if known is None:
            pattern = Pattern(regex)
            known = pattern, frozenset(_matched(pattern, self._image.topics))
            if len(self._matching) >= MAX_PATTERNS:
                del self._matching[next(iter(self._matching))]
        self._matching[regex] = known
        return known[1]

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata: match the topics that came, forget those that went."""
        self._image = image
        topics, created = delta.topics, delta.topics.created()
        grown = any(topic.has_new_partitions for topic in topics.changed.values())
        if not (created or grown or topics.deleted):
            return
        self.version += 1
        gone = {topic.name for topic in topics.deleted.values()}
        for regex, (pattern, matching) in list(self._matching.items()):
            try:
                added = _matched(pattern, created)
            except PatternError:
                del self._matching[regex]  # asked for again, it is tried again
                continue
            if added or not matching.isdisjoint(gone):
                self._matching[regex] = pattern, matching.difference(gone).union(added)


def _matched(pattern: Pattern, names: Iterable[str]) -> list[str]:
    """The names that match; internal topics are matched by no pattern, as in Kafka."""
    pattern.cost = 0
    matched = []
    for name in names:
        if pattern.matches(name) and name not in INTERNAL_TOPICS:
            matched.append(name)
        if pattern.cost > MAX_COST:
            raise PatternError("to match it with all topics would take too long")
    return matched
