"""Patterns and the topics they match, as topics come and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.coordinator.groups.consumer import subscription_metadata, topic_patterns
from ottla.coordinator.groups.consumer.pattern import Pattern, PatternError
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
from ottla.model.errors import ErrorCode
from ottla.replication.timers import Timers
from ottla.wire.message import Message
from tests.support.consumer_groups import Broker, Consumer, consumer_group, settle


class Topics:
    """An image and the patterns that follow it. Each change is a wake-up."""

    def __init__(self, *names: str) -> None:
        self.image = MetadataImage()
        self.monotonic_ms = 0.0
        self.timers = Timers()
        self.patterns = TopicPatterns(self)
        self.create(*names)

    def wake_up(self) -> bool:
        """Run the next slice. Return False if there is none."""
        deadline_ms = self.timers.next_deadline_ms()
        if deadline_ms is None:
            return False
        self.monotonic_ms = deadline_ms
        self.timers.run(deadline_ms)
        return True

    def write(self, *records: Message) -> None:
        self.monotonic_ms += 1
        delta = MetadataDelta(self.image).replay_all(records)
        self.image = delta.apply()
        deleted = [topic.name for topic in delta.topics.deleted.values()]
        self.patterns.topics_changed([*delta.topics.created(), *deleted])

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


def test_internal_topics_match_like_others() -> None:
    topics = Topics("__consumer_offsets", "mine")
    assert topics.patterns.matching("__.*") == {"__consumer_offsets"}
    assert topics.patterns.matching(".*") == {"__consumer_offsets", "mine"}


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


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names that are matched, of all patterns."""
    names: list[str] = []
    original = Pattern.matcher

    def matcher(self: Pattern) -> Callable[[str], bool]:
        matches = original(self)

        def recorded(name: str) -> bool:
            names.append(name)
            return matches(name)

        return recorded

    monkeypatch.setattr(Pattern, "matcher", matcher)
    return names


def test_each_name_is_matched_once(seen: list[str]) -> None:
    topics = Topics(*(f"t{number}" for number in range(500)))
    assert len(topics.patterns.matching("t.*5") or ()) == 50
    assert len(seen) == 500
    topics.create("new", "new5")
    topics.patterns.matching("t.*5")
    topics.delete("t5")
    assert topics.patterns.matching("t.*5") == {f"t{number}" for number in range(15, 500, 10)}
    assert seen[500:] == ["new", "new5"]


def test_many_topics_are_matched_in_slices(seen: list[str]) -> None:
    names = [f"t{number}" for number in range(5000)]
    topics = Topics(*names)
    version = topics.patterns.version
    assert topics.patterns.matching("t.*5") is None
    slices = [len(seen)]
    while topics.wake_up():
        slices.append(len(seen) - sum(slices))
    assert sorted(seen) == sorted(names)
    assert len(slices) > 4
    assert max(slices) * 1000 < topic_patterns.BUDGET * 1.1
    assert topics.patterns.version == version + 1
    assert topics.patterns.matching("t.*5") == set(names[5::10])


def test_one_new_topic_and_many_large_patterns_take_a_bounded_wake_up(seen: list[str]) -> None:
    topics = Topics("t")
    regexes = [f"(.?){{300}}(?:q{number})?" for number in range(90)]
    for regex in regexes:
        topics.monotonic_ms += 1
        assert topics.patterns.matching(regex) == {"t"}
    seen.clear()
    long = "x" * 249
    topics.create(long)
    cost = Pattern(regexes[0]).cost(long)
    most = topic_patterns.BUDGET // cost + 1
    assert len(seen) <= most
    version = topics.patterns.version
    before = len(seen)
    while topics.wake_up():
        assert len(seen) - before <= most
        before = len(seen)
    assert seen == [long] * 90
    assert topics.patterns.version > version
    assert all(topics.patterns.matching(regex) == {"t", long} for regex in regexes)


def test_a_wake_up_compiles_few_large_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics("t")
    regexes = [f"(a|b){{0,300}}{number}" for number in range(topic_patterns.MAX_UNUSED)]
    for regex in regexes:
        while topics.patterns.matching(regex) is None:
            assert topics.wake_up()
    compiled: list[int] = []
    original = Pattern.matcher

    def matcher(self: Pattern) -> Callable[[str], bool]:
        compiled.append(self.size)
        return original(self)

    monkeypatch.setattr(Pattern, "matcher", matcher)
    topics.create("new")
    wake_ups = 1
    while len(compiled) < len(regexes):
        # A millisecond compiles about 1,500 instructions.
        assert sum(compiled) < wake_ups * 4_000
        assert topics.wake_up()
        wake_ups += 1
    assert sum(compiled) < wake_ups * 4_000
    assert topics.patterns.matching(regexes[-1]) == frozenset()


def test_a_slow_pattern_does_not_hold_up_the_others() -> None:
    topics = Topics(*(f"{number:03}".ljust(249, "x") for number in range(300)))
    assert topics.patterns.matching("(.?){300}") is None
    assert topics.patterns.matching("0.*") is None
    while topics.patterns.matching("0.*") is None:
        assert topics.wake_up()
    assert topics.patterns.matching("(.?){300}") is None


def test_topics_that_come_and_go_in_the_middle_of_it() -> None:
    topics = Topics(*(f"t{number}" for number in range(3000)))
    assert topics.patterns.matching("t.*") is None
    topics.create("t-new")
    topics.delete("t7")
    topics.delete("t2999")
    topics.create("t7")
    while topics.wake_up():
        pass
    expected = {f"t{number}" for number in range(2999)} | {"t-new"}
    assert topics.patterns.matching("t.*") == expected


def test_patterns_nobody_uses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_patterns, "MAX_UNUSED", 2)
    topics = Topics("a")
    patterns = topics.patterns
    for regex in ("a", "b", "a", "c"):
        patterns.matching(regex)
    assert list(patterns._matches) == ["a", "c"]
    patterns.use("d")
    for regex in ("d", "e", "f", "g"):
        patterns.matching(regex)
    assert list(patterns._matches) == ["d", "f", "g"]
    patterns.release("d")
    assert list(patterns._matches) == ["d", "g"]


def test_groups_use_their_patterns_while_they_exist(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_patterns, "MAX_UNUSED", 1)
    patterns = broker.node.groups.topic_patterns
    one = Consumer(broker, "one", None, regex="a.*")
    two = Consumer(broker, "two", None, regex="b.*")
    assert (one.heartbeat(), two.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert set(patterns._matches) == {"a.*", "b.*"}
    one.leave()
    patterns.matching("c.*")
    assert set(patterns._matches) == {"b.*", "c.*"}
    broker.crash_and_restart()
    assert dict(broker.node.groups.topic_patterns._users) == {"b.*": 1}


def test_what_attackers_send_is_refused(broker: Broker) -> None:
    for number in range(100):
        consumer = Consumer(broker, f"m{number}", None, regex=f"((.?){{1000}}){{3}}(?:q{number})?")
        assert consumer.heartbeat() == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not broker.node.groups.topic_patterns._matches
    with pytest.raises(PatternError):
        Pattern("((.?){1000}){3}(?:q1)?")


def test_one_new_topic_and_many_expressions_are_spread_over_heartbeats(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_metadata, "MAX_NAMES", 100)
    for number in range(40):
        broker.create_topic(f"logs-{number}")
    consumers = [
        Consumer(broker, f"m{number}", None, regex=f"logs-.*(?:q{number})?") for number in range(8)
    ]
    settle(broker, *consumers)
    group = consumer_group(broker)
    assert {len(resolved.topics) for resolved in group.regexes.values()} == {40}
    broker.create_topic("logs-new")
    counts = []
    for consumer in consumers:
        consumer.heartbeat()
        counts.append(sum("logs-new" in known.topics for known in group.regexes.values()))
    assert counts == [2, 4, 6, 8, 8, 8, 8, 8]
    settle(broker, *consumers)
    assert sum(len(consumer.owned) for consumer in consumers) == 41


def test_a_group_has_a_limited_number_of_expressions(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_metadata, "MAX_REGEXES", 3)
    members = [Consumer(broker, f"m{number}", None, regex=f"a{number}") for number in range(4)]
    codes = [member.heartbeat() for member in members]
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert Consumer(broker, "other", None, regex="a1").heartbeat() is ErrorCode.NONE
    assert members[0].heartbeat() is ErrorCode.NONE


def test_a_group_has_a_limited_number_of_topics(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_metadata, "MAX_TOPICS", 30)
    for number, code in enumerate((ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED)):
        names = [f"topic-{number}-{index}" for index in range(20)]
        assert Consumer(broker, f"m{number}", names).heartbeat() is code
    assert Consumer(broker, "m2", ["topic-0-1"]).heartbeat() is ErrorCode.NONE
    too_many = Consumer(broker, "m3", ["a"] * 20_001)
    assert too_many.heartbeat() is ErrorCode.INVALID_REQUEST
