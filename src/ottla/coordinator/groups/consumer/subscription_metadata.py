"""The topics that a group subscribes to, after its members or the topics have changed.

The group epoch goes up when a subscription changes, and when its topics do: they are deleted,
get partitions, or begin to match a regular expression. A hash of the topics is stored with the
epoch, so that a coordinator that loads the group can tell (KIP-1101).

One heartbeat takes over a limited number of topics that regular expressions match now. The next
heartbeats of the group take over the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.coordinator.groups.consumer import record_builders
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.consumer.pattern import PatternError
from ottla.coordinator.groups.consumer.records import ConsumerGroupMemberMetadataValue
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.metadata.image import MetadataImage
from ottla.model.digest import blake2b
from ottla.model.errors import ApiError, ErrorCode

MAX_TOPICS: Final = 20_000
"""How many different topics the members of a group may name."""

MAX_REGEXES: Final = 50
"""How many different regular expressions the members of a group may have."""

MAX_NAMES: Final = 10_000
"""How many topics of changed regular expressions a heartbeat takes over, unless one has more."""

_HASH_BYTES = 8


class Subscribed(NamedTuple):
    """The topics of each regular expression, a hash of all topics, and records of changes."""

    regexes: dict[str, frozenset[str]]
    metadata_hash: int
    records: list[GroupRecord]
    is_complete: bool = True
    """False if some regular expressions have topics that are not taken over yet."""

    def differs_from(self, group: ConsumerGroup) -> bool:
        """Return True if these are not the topics that the group knows."""
        return self.metadata_hash != group.metadata_hash or bool(self.records)


def subscribed(
    group: ConsumerGroup,
    gone: Iterable[ConsumerMember] = (),
    come: ConsumerGroupMemberMetadataValue | None = None,
) -> Subscribed:
    """Return what the group subscribes to without some members, and with another one.

    Raise INVALID_REGULAR_EXPRESSION if the new one has an invalid expression, and
    GROUP_MAX_SIZE_REACHED if it is one too many. Nothing is computed if the set of topics and
    expressions stays the same.
    """
    broker = group.shard.broker
    topics, regexes = _counts(group, gone, come)
    if (
        group.topics_version == group.shard.topic_patterns.version
        and topics.keys() == group.member_counts.topics.keys()
        and regexes.keys() == group.member_counts.regexes.keys() == group.regexes.keys()
    ):
        return Subscribed(known_regexes(group), group.metadata_hash, [])
    own = () if come is None else _regexes_of(come)
    if come is not None:
        _check_size(group, len(topics), len(regexes))
    resolved, is_complete = _resolve_all(group, dict.fromkeys((*own, *regexes)))
    names = set(topics).union(*resolved.values())
    records = _regex_records(group, resolved)
    return Subscribed(resolved, metadata_hash(broker.image, names), records, is_complete)


def _check_size(group: ConsumerGroup, topics: int, regexes: int) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if the group grows beyond what it may subscribe to."""
    counts = group.member_counts
    for number, before, limit, what in (
        (topics, len(counts.topics), MAX_TOPICS, "topics"),
        (regexes, len(counts.regexes), MAX_REGEXES, "regular expressions"),
    ):
        if number > max(before, limit):
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of a group may subscribe to {limit} different {what}.",
            )


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


def _resolve_all(
    group: ConsumerGroup, regexes: Iterable[str]
) -> tuple[dict[str, frozenset[str]], bool]:
    """Return the topics of each expression, and False if some are those of before."""
    resolved: dict[str, frozenset[str]] = {}
    taken, is_complete = 0, True
    for regex in regexes:
        known = group.regexes.get(regex)
        topics = _resolve(group, regex)
        if known is not None and topics is not known.topics and topics != known.topics:
            if taken and taken + len(topics) > MAX_NAMES:
                topics, is_complete = known.topics, False
            else:
                taken += len(topics)
        resolved[regex] = topics
    return resolved, is_complete


def _resolve(group: ConsumerGroup, regex: str) -> frozenset[str]:
    """Return the topics of an expression: until they are known, those that are stored."""
    known = group.regexes.get(regex)
    stored = frozenset[str]() if known is None else known.topics
    try:
        topics = group.shard.topic_patterns.matching(regex)
        return stored if topics is None else topics
    except PatternError as error:
        if known is not None:  # Kafka, or an earlier version, took it
            return stored
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
        if regex not in group.regexes
        or (group.regexes[regex].topics is not topics and group.regexes[regex].topics != topics)
    ]
    records.extend(
        record_builders.regex_tombstone(group.group_id, regex)
        for regex in group.regexes
        if regex not in resolved
    )
    return records
