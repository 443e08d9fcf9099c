"""The target assignment of a group epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.groups.consumer import group_config, record_builders
from ottla.coordinator.groups.consumer.assignment import NO_PARTITIONS, Partitions
from ottla.coordinator.groups.consumer.assignors import ASSIGNORS, MemberSpec
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.metadata.image import MetadataImage


class Subscriber(NamedTuple):
    """What the assignment needs to know of a member."""

    member_id: str
    instance_id: str | None
    topic_names: frozenset[str]
    regex: str | None
    target: Partitions


def is_due(group: ConsumerGroup) -> bool:
    """Return True if the last target assignment is old enough for another one (KIP-1263).

    Otherwise each of many members that join would move the partitions of all others.
    """
    if group.assignment_epoch == 0:
        return True
    broker = group.shard.broker
    age_ms = broker.wall_ms - group.assignment_ms
    return not 0 <= age_ms < group_config.assignment_interval_ms(broker, group.group_id)


def make_targets(
    group: ConsumerGroup,
    epoch: int,
    subscribers: Iterable[Subscriber],
    regexes: Mapping[str, frozenset[str]],
    assignor: str,
) -> tuple[dict[str, Partitions], list[GroupRecord]]:
    """Return the targets of all members for an epoch, and the records of those that change."""
    broker = group.shard.broker
    topic_ids = _TopicIds(broker.image, regexes)
    specs = [
        MemberSpec(
            member.member_id,
            member.instance_id,
            topic_ids.of(member.topic_names, member.regex),
            member.target,
        )
        for member in subscribers
    ]
    targets = ASSIGNORS[assignor](specs, topic_ids.counts)
    group_id = group.group_id
    records = [
        record_builders.target_record(group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    records.append(record_builders.target_epoch_record(group_id, epoch, broker.wall_ms))
    return targets, records


def subscribers_of(group: ConsumerGroup, without: Iterable[str]) -> list[Subscriber]:
    """Return the members of a group except some."""
    left_out = set(without)
    targets = group.targets
    return [
        Subscriber(
            member_id,
            member.metadata.instance_id,
            member.topic_names,
            member.metadata.subscribed_topic_regex,
            targets.get(member_id, NO_PARTITIONS),
        )
        for member_id, member in group.members.items()
        if member_id not in left_out
    ]


class _TopicIds:
    """Finds the ids of existing topics for subscriptions. Equal ones are looked up once."""

    def __init__(self, image: MetadataImage, regexes: Mapping[str, frozenset[str]]) -> None:
        self._topics = image.topics
        self._regexes = regexes
        self._known: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
        self.counts: dict[bytes, int] = {}

    def of(self, names: frozenset[str], regex: str | None) -> frozenset[bytes]:
        known = self._known.get((names, regex))
        if known is None:
            known = self._look_up(names.union(self._regexes.get(regex or "", ())))
            self._known[names, regex] = known
        return known

    def _look_up(self, names: frozenset[str]) -> frozenset[bytes]:
        found = []
        for name in names:
            topic = self._topics.get(name)
            if topic is not None and topic.partitions:
                found.append(topic.topic_id)
                self.counts[topic.topic_id] = len(topic.partitions)
        return frozenset(found)
