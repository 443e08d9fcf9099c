"""The topics that a group subscribes to, after its members or the topics have changed.

The group epoch goes up when a subscription changes, and when its topics do: they are deleted,
get partitions, or begin to match a regular expression. A hash of the topics is stored with the
epoch, so that a coordinator that loads the group can tell (KIP-1101).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from ottla.coordinator.groups.consumer import record_builders
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.consumer.pattern_syntax import PatternError
from ottla.coordinator.groups.consumer.records import ConsumerGroupMemberMetadataValue
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode

_HASH_BYTES = 8


class Subscribed(NamedTuple):
    """The topics of each regular expression, a hash of all topics, and records of changes."""

    regexes: dict[str, frozenset[str]]
    metadata_hash: int
    records: list[GroupRecord]

    def differs_from(self, group: ConsumerGroup) -> bool:
        """Return True if these are not the topics that the group knows."""
        return self.metadata_hash != group.metadata_hash or any(
            regex not in group.regexes or group.regexes[regex].topics != topics
            for regex, topics in self.regexes.items()
        )


def subscribed(
    group: ConsumerGroup,
    gone: Iterable[ConsumerMember] = (),
    come: ConsumerGroupMemberMetadataValue | None = None,
) -> Subscribed:
    """Return what the group subscribes to without some members, and with another one.

    Raise INVALID_REGULAR_EXPRESSION if the new one has an invalid expression. Nothing is
    computed if the set of topics and expressions stays the same.
    """
    broker = group.shard.broker
    topics, regexes = _counts(group, gone, come)
    if (
        group.topics_version == group.shard.topic_patterns.version
        and topics.keys() == group.member_counts.topics.keys()
        and regexes.keys() == group.member_counts.regexes.keys() == group.regexes.keys()
    ):
        return Subscribed(known_regexes(group), group.metadata_hash, [])
    resolved = {regex: _resolve(group, regex) for regex in regexes}
    names = set(topics).union(*resolved.values())
    return Subscribed(resolved, metadata_hash(broker.image, names), _regex_records(group, resolved))


def known_regexes(group: ConsumerGroup) -> dict[str, frozenset[str]]:
    """Return the topics of a group's regular expressions, as they are stored."""
    return {regex: resolved.topics for regex, resolved in group.regexes.items()}


def _counts(
    group: ConsumerGroup,
    gone: Iterable[ConsumerMember],
    come: ConsumerGroupMemberMetadataValue | None,
) -> tuple[Counter[str], Counter[str]]:
    topics, regexes = group.member_counts.topics.copy(), group.member_counts.regexes.copy()
    for member in gone:
        topics.subtract(member.topic_names)
        regexes.subtract(_regexes_of(member.metadata))
    if come is not None:
        topics.update(come.subscribed_topic_names)
        regexes.update(_regexes_of(come))
    return +topics, +regexes


def metadata_hash(image: MetadataImage, names: Iterable[str]) -> int:
    """Return a number that changes with the named topics and their partitions."""
    digest = blake2b(digest_size=_HASH_BYTES)
    found = False
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is not None:
            found = True
            digest.update(topic.topic_id + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def _regexes_of(metadata: ConsumerGroupMemberMetadataValue) -> tuple[str, ...]:
    regex = metadata.subscribed_topic_regex
    return (regex,) if regex else ()


def _resolve(group: ConsumerGroup, regex: str) -> frozenset[str]:
    try:
        return group.shard.topic_patterns.matching(regex)
    except PatternError as error:
        known = group.regexes.get(regex)
        if known is not None:  # it was valid with the topics of that time
            return known.topics
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex[:100]}` is not a valid regular expression: {error}.",
        ) from error


def _regex_records(group: ConsumerGroup, resolved: dict[str, frozenset[str]]) -> list[GroupRecord]:
    broker = group.shard.broker
    records = [
        record_builders.regex_record(
            group.group_id, regex, topics, group.shard.topic_patterns.version, broker.wall_ms
        )
        for regex, topics in resolved.items()
        if regex not in group.regexes or group.regexes[regex].topics != topics
    ]
    records.extend(
        record_builders.regex_tombstone(group.group_id, regex)
        for regex in group.regexes
        if regex not in resolved
    )
    return records
