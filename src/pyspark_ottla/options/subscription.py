"""The partitions that a query reads: option `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.model.ids import TopicPartition
from pyspark_ottla.options.offset_json import partitions_from_json
from pyspark_ottla.options.option_values import OptionError

STRATEGIES = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class Subscription:
    """Topics by name, topics by pattern, or single partitions. Exactly one of them is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[TopicPartition] = frozenset()

    @property
    def asked_topics(self) -> tuple[str, ...] | None:
        """The topics to look up, or None for all topics."""
        if self.pattern is not None:
            return None
        return self.topics or tuple(sorted({partition.topic for partition in self.assigned}))

    def takes(self, partition: TopicPartition) -> bool:
        """Return true if the query reads this partition of a topic in `asked_topics`."""
        if self.pattern is not None:
            return re.search(self.pattern, partition.topic) is not None
        return not self.assigned or partition in self.assigned

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern!r}"
        return ", ".join(self.topics or sorted(str(found) for found in self.assigned))


def subscription(options: Mapping[str, str]) -> Subscription:
    """Return the subscription in the options. Raise OptionError unless exactly one is set."""
    given = [name for name in STRATEGIES if name in options]
    if len(given) != 1:
        what = "none is" if not given else f"{' and '.join(given)} are"
        raise OptionError(f"exactly one of {', '.join(STRATEGIES)} must be set; {what}")
    text = options[given[0]]
    if given[0] == "subscribe":
        return Subscription(topics=_topics(text))
    if given[0] == "subscribePattern":
        return Subscription(pattern=_pattern(text))
    return Subscription(assigned=_assigned(text))


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise OptionError(f"subscribe is {text!r}: expected topic names, separated by commas")
    return topics


def _pattern(text: str) -> str:
    pattern = text.strip()
    if not pattern:
        raise OptionError("subscribePattern is empty: expected a regular expression")
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(
            f"subscribePattern {pattern!r} is not a valid regular expression: {error}"
        ) from None
    return pattern


def _assigned(text: str) -> frozenset[TopicPartition]:
    partitions = partitions_from_json("assign", text)
    if not partitions:
        raise OptionError(f"assign is {text!r}: expected at least one partition")
    return partitions
