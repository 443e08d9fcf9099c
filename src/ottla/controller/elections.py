"""Elections of leaders that somebody asks for (ElectLeaders, KIP-183, KIP-460)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.controller.broker_changes import PartitionRules
from ottla.controller.decision import Decision, check_number, plain
from ottla.controller.partition_change import Election, change_partition
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import NO_LEADER, PartitionChangeRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps
from ottla.wire.message import Message

ELECTION_TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}
"""The elections of Kafka's protocol, by number."""


class ElectedLeader(NamedTuple):
    """The result for one partition."""

    partition: TopicPartition
    error: ApiError | None = None


def elect_leaders(
    image: MetadataImage,
    config: BrokerConfig,
    election: Election,
    partitions: Sequence[TopicPartition] | None,
) -> Steps[Decision[ElectedLeader]]:
    """Decide on the leaders of some partitions, or of all that have another one (None)."""
    rules = PartitionRules(image, config)
    decision: Decision[ElectedLeader] = Decision([], [])
    for name in _all(image) if partitions is None else partitions:
        yield
        if partitions is None and not _is_needed(found(image, name)[1], election):
            continue
        error = None
        try:
            check_number(len(decision.records) + 1, "elections")
            decision.records.append(_elect(image, rules, election, name))
        except ApiError as refusal:
            error = plain(refusal)
        decision.results.append(ElectedLeader(name, error))
    return decision


def elect_preferred(
    image: MetadataImage, config: BrokerConfig, at_most: int
) -> Steps[list[Message]]:
    """Return records that let preferred replicas lead again where they can, at most `at_most`.

    A broker counts if others lead more than leader.imbalance.per.broker.percentage of the
    partitions for which it is preferred. A partition without a leader gets any leader that it may
    have: its topic may allow unclean elections by now.
    """
    rules = PartitionRules(image, config)
    imbalanced = yield from _imbalanced_brokers(
        image, config.replication.leader_imbalance_per_broker_percentage
    )
    records: list[Message] = []
    for topic in image.topics.values():
        for partition in topic.partitions:
            yield
            if has_preferred_leader(partition):
                continue
            if partition.leader != NO_LEADER and partition.replicas[0] not in imbalanced:
                continue
            election = Election.ONLINE if partition.leader == NO_LEADER else Election.PREFERRED
            record = change_partition(
                topic.topic_id, partition, rules.of(topic.name), election=election
            )
            if record is not None:
                records.append(record)
            if len(records) >= at_most:
                return records
    return records


def _imbalanced_brokers(image: MetadataImage, percentage: int) -> Steps[set[int]]:
    """Return the brokers that lead too few of the partitions that they are preferred for."""
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred[partition.replicas[0]] += 1
            if partition.leader not in (NO_LEADER, partition.replicas[0]):
                elsewhere[partition.replicas[0]] += 1
        yield
    return {each for each, count in elsewhere.items() if count * 100 > percentage * preferred[each]}


def has_preferred_leader(partition: PartitionImage) -> bool:
    """Return True if the first replica leads."""
    return partition.replicas[:1] == (partition.leader,)


def _all(image: MetadataImage) -> Iterator[TopicPartition]:
    for topic in image.topics.values():
        for index in range(len(topic.partitions)):
            yield TopicPartition(topic.name, index)


def _is_needed(partition: PartitionImage, election: Election) -> bool:
    if election is Election.PREFERRED:
        return not has_preferred_leader(partition)
    return partition.leader == NO_LEADER


def _elect(
    image: MetadataImage, rules: PartitionRules, election: Election, name: TopicPartition
) -> PartitionChangeRecord:
    topic, partition = found(image, name)
    if not _is_needed(partition, election):
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "It has the wanted leader already")
    record = change_partition(topic.topic_id, partition, rules.of(topic.name), election=election)
    if record is not None:
        return record
    if election is Election.PREFERRED:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Broker {partition.replicas[0]} is not in sync, or not active",
        )
    raise ApiError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of its replicas is on an active broker"
    )


def found(image: MetadataImage, name: TopicPartition) -> tuple[TopicImage, PartitionImage]:
    """Return a partition and its topic. Raise UNKNOWN_TOPIC_OR_PARTITION."""
    topic = image.topics.get(name.topic)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named {name.topic}"
        )
    if not 0 <= name.partition < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}")
    return topic, topic.partitions[name.partition]
