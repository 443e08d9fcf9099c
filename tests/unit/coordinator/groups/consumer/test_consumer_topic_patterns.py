"""Patterns and the topics they match, as topics come and go."""

from __future__ import annotations

import pytest

from ottla.coordinator.groups.consumer import topic_patterns
from ottla.coordinator.groups.consumer.pattern_syntax import PatternError
from ottla.coordinator.groups.consumer.topic_patterns import TopicPatterns
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.wire.message import Message
from tests.support.consumer_groups import Broker


class Topics:
    """An image and the patterns that follow it."""

    def __init__(self, *names: str) -> None:
        self.image = MetadataImage()
        self.patterns = TopicPatterns(self)
        self.create(*names)

    def write(self, *records: Message) -> None:
        delta = MetadataDelta(self.image).replay_all(records)
        self.image = delta.apply()
        self.patterns.topics_changed([r.name for r in records if isinstance(r, TopicRecord)])

    def create(self, *names: str) -> None:
        self.write(*(TopicRecord(name=name, topic_id=name.encode().ljust(16)) for name in names))

    def delete(self, name: str) -> None:
        self.write(RemoveTopicRecord(topic_id=name.encode().ljust(16)))


def test_topics_come_and_go() -> None:
    topics = Topics("a1", "b1")
    assert topics.patterns.matching("a.*") == {"a1"}
    topics.create("a2", "b2")
    assert topics.patterns.matching("a.*") == {"a1", "a2"}
    topics.delete("a1")
    assert topics.patterns.matching("a.*") == {"a2"}
    assert topics.patterns.matching(".*") == {"a2", "b1", "b2"}


def test_internal_topics_are_not_matched() -> None:
    topics = Topics("__consumer_offsets", "__transaction_state", "__mine")
    assert topics.patterns.matching("__.*") == {"__mine"}


def test_the_version_changes_with_topics_and_partitions_only(broker: Broker) -> None:
    patterns, write = broker.node.groups.topic_patterns, broker.node.controller.write
    broker.create_topic("a")
    version = patterns.version
    topic_id = broker.node.image.topics["a"].topic_id
    write([PartitionRecord(partition_id=1, topic_id=topic_id, replicas=[1], isr=[1])])
    assert patterns.version == version + 1
    write([PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)])
    write([ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1")])
    assert patterns.version == version + 1
    write([RemoveTopicRecord(topic_id=topic_id)])
    assert patterns.version == version + 2


def test_a_new_topic_is_all_that_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics(*(f"t{number}" for number in range(1000)))
    topics.patterns.matching("t.*5")
    pattern, _ = topics.patterns._matching["t.*5"]
    seen: list[str] = []

    def matches(_: object, name: str) -> bool:
        seen.append(name)
        return True

    monkeypatch.setattr(type(pattern), "matches", matches)
    topics.create("new")
    assert topics.patterns.matching("t.*5") > {"new"}
    assert seen == ["new"]


def test_a_pattern_that_costs_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:08b}".translate({48: "b", 49: "a"}) * 20 for number in range(256)]
    topics = Topics(*names)
    monkeypatch.setattr(topic_patterns, "MAX_COST", 100_000)
    assert topics.patterns.matching(".*a.*") == {name for name in names if "a" in name}
    with pytest.raises(PatternError, match="too long"):
        topics.patterns.matching(".*a.{100}")


def test_patterns_nobody_asked_for_lately_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_patterns, "MAX_PATTERNS", 2)
    topics = Topics("a")
    for regex in ("a", "b", "a", "c"):
        topics.patterns.matching(regex)
    assert list(topics.patterns._matching) == ["a", "c"]
