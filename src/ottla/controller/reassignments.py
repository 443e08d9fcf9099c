"""Moves of replicas to other brokers (KIP-455): begin, change and cancel them.

A reassignment adds replicas at once. `partition_change` ends it when they are in sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.controller.assignments import check_assignment
from ottla.controller.broker_changes import PartitionRules
from ottla.controller.decision import Decision, check_number, plain
from ottla.controller.elections import found
from ottla.controller.partition_change import Assignment, ChangeRules, change_partition
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps


class WantedReplicas(NamedTuple):
    """The replicas that a partition is to have; None to cancel its reassignment."""

    partition: TopicPartition
    replicas: Sequence[int] | None


class Reassigned(NamedTuple):
    """The result for one partition."""

    partition: TopicPartition
    error: ApiError | None = None


def alter_reassignments(
    image: MetadataImage,
    config: BrokerConfig,
    wanted: Sequence[WantedReplicas],
    *,
    allow_replication_factor_change: bool = True,
) -> Steps[Decision[Reassigned]]:
    """Decide on partitions that are to have other replicas, or to keep those they had."""
    rules = PartitionRules(image, config)
    decision: Decision[Reassigned] = Decision([], [])
    seen: set[TopicPartition] = set()
    for name, replicas in wanted:
        yield
        try:
            if name in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"The request names {name} twice")
            seen.add(name)
            check_number(len(seen), "partitions")
            topic, partition = found(image, name)
            topic_rules = rules.of(topic.name)
            if replicas is None:
                record = _cancel(topic, partition, topic_rules)
            else:
                check_assignment(image, replicas, None)
                if not allow_replication_factor_change:
                    _check_replication_factor(partition, replicas)
                record = _reassign(topic, partition, topic_rules, tuple(replicas))
        except ApiError as error:
            decision.results.append(Reassigned(name, plain(error)))
            continue
        decision.results.append(Reassigned(name))
        if record is not None:
            decision.records.append(record)
    return decision


def reassigning(
    image: MetadataImage, asked: Sequence[TopicPartition] | None
) -> Steps[dict[TopicPartition, PartitionImage]]:
    """Return those of the partitions (None: of all) that are being reassigned."""
    found: dict[TopicPartition, PartitionImage] = {}
    if asked is None:
        for topic in image.topics.values():
            for partition in topic.partitions:
                yield
                if _is_reassigning(partition):
                    found[TopicPartition(topic.name, partition.partition_id)] = partition
        return found
    for name in asked:
        yield
        known = image.topics.get(name.topic)
        if known is not None and 0 <= name.partition < len(known.partitions):
            partition = known.partitions[name.partition]
            if _is_reassigning(partition):
                found[name] = partition
    return found


def _is_reassigning(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _reassign(
    topic: TopicImage, partition: PartitionImage, rules: ChangeRules, target: tuple[int, ...]
) -> PartitionChangeRecord | None:
    before = _without(partition.replicas, partition.adding_replicas)
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = tuple(sorted(set(target) - set(before)))
    assignment = Assignment(target + removing, removing, adding)
    return change_partition(topic.topic_id, partition, rules, assignment=assignment)


def _cancel(
    topic: TopicImage, partition: PartitionImage, rules: ChangeRules
) -> PartitionChangeRecord | None:
    if not _is_reassigning(partition):
        raise ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress"
        )
    replicas = _without(partition.replicas, partition.adding_replicas)
    isr = _without(partition.isr, partition.adding_replicas)
    if not isr:
        if not rules.allows_unclean:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Only replicas that are being added are in sync: to cancel the reassignment would"
                " need an unclean leader election",
            )
        isr = replicas[:1]
    return change_partition(
        topic.topic_id, partition, rules, isr=isr, assignment=Assignment(replicas)
    )


def _check_replication_factor(partition: PartitionImage, replicas: Sequence[int]) -> None:
    now = len(_without(partition.replicas, partition.removing_replicas))
    if len(replicas) != now:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor would change from {now} to {len(replicas)}",
        )


def _without(replicas: Sequence[int], gone: Sequence[int]) -> tuple[int, ...]:
    return tuple(each for each in replicas if each not in gone)
