"""Which topics the regular expressions of subscriptions match, kept up with the metadata.

A pattern is matched with all topics when it is first asked for, and from then on only with
the topics that are created, however many groups use it. `version` counts what subscriptions
have to look at: topics that come and go, and partitions that are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.coordinator.groups.consumer.pattern import Pattern
from ottla.coordinator.groups.consumer.pattern_syntax import PatternError
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.model.ids import INTERNAL_TOPICS
from ottla.wire.message import Message

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

    def metadata_changed(self, records: Sequence[Message]) -> None:
        """Listener of the controller, called after the image has changed."""
        created = [record.name for record in records if isinstance(record, TopicRecord)]
        if not created and not any(
            isinstance(record, RemoveTopicRecord | PartitionRecord) for record in records
        ):
            return
        self.version += 1
        for regex, (pattern, topics) in list(self._matching.items()):
            gone = topics - self._image.topics.keys()
            try:
                added = _matched(pattern, created)
            except PatternError:
                del self._matching[regex]  # asked for again, it is tried again
                continue
            if gone or added:
                self._matching[regex] = pattern, topics.difference(gone).union(added)


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
