"""Log directories of brokers (KIP-858): which replica is in which, and what happens if one fails.

A broker with several log directories tells where it has put each replica. When a directory fails,
only the replicas in it stop leading and leave the ISR; the broker goes on with the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.controller.broker_changes import (
    PartitionRules,
    change_all,
    is_online,
    rules_without,
)
from ottla.controller.decision import Decision
from ottla.controller.partition_change import change_partition, directories_of
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from ottla.model.steps import Steps
from ottla.wire.message import Message


class DirectoryAssignment(NamedTuple):
    """A replica, and the log directory that it is in."""

    directory: bytes
    topic_id: bytes
    partition_id: int


class AssignedReplica(NamedTuple):
    """The result for one replica."""

    assignment: DirectoryAssignment
    error: ApiError | None


def lose_directories(
    image: MetadataImage, config: BrokerConfig, broker_id: int, failed: Collection[bytes]
) -> Steps[list[Message]]:
    """Return the records for log directories that a broker cannot use any more."""
    broker = image.brokers[broker_id]
    lost = set(failed).intersection(broker.log_dirs)
    if not lost:
        return []
    rules = rules_without(image, config, broker_id)

    def change(topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord | None:
        if directories_of(partition).get(broker_id) not in lost:
            return None
        isr = [each for each in partition.isr if each != broker_id]
        return change_partition(
            topic.topic_id, partition, rules.of(topic.name), isr=isr, lost=(broker_id,)
        )

    records = yield from change_all(image, change)
    registration = BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=broker.broker_epoch,
        log_dirs=[each for each in broker.log_dirs if each not in lost],
    )
    return [*records, registration]


def assign_directories(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    assignments: Sequence[DirectoryAssignment],
) -> Steps[Decision[AssignedReplica]]:
    """Note where a broker has its replicas. Those in a directory that failed are not in sync."""
    broker = image.brokers.get(broker_id)
    usable, unusable = PartitionRules(image, config), rules_without(image, config, broker_id)
    decision: Decision[AssignedReplica] = Decision([], [])
    for assignment in assignments:
        yield
        directory, topic_id, partition_id = assignment
        topic = image.topics_by_id.get(topic_id)
        code = _code(image, broker_id, assignment)
        if code is not ErrorCode.NONE or topic is None or broker is None:
            decision.results.append(AssignedReplica(assignment, ApiError(code)))
            continue
        partition = topic.partitions[partition_id]
        isr: list[int] | None = None
        rules, lost = usable.of(topic.name), tuple[int, ...]()
        if not is_online(broker, directory):
            isr = [each for each in partition.isr if each != broker_id]
            rules, lost = unusable.of(topic.name), (broker_id,)
        elif not _may_lead(broker, partition):
            rules, lost = unusable.of(topic.name), (broker_id,)
        record = change_partition(
            topic_id, partition, rules, isr=isr, directories={broker_id: directory}, lost=lost
        )
        if record is not None:
            decision.records.append(record)
        decision.results.append(AssignedReplica(assignment, None))
    return decision


def _code(image: MetadataImage, broker_id: int, assignment: DirectoryAssignment) -> ErrorCode:
    """Return why a replica cannot be assigned to a directory; NONE if it can."""
    if broker_id not in image.brokers:
        return ErrorCode.STALE_BROKER_EPOCH  # it was unregistered meanwhile
    topic = image.topics_by_id.get(assignment.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= assignment.partition_id < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in topic.partitions[assignment.partition_id].replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _may_lead(broker: BrokerImage, partition: PartitionImage) -> bool:
    """Return False if a replica was in a directory that its broker does not have any more.

    Its log begins again in another directory, and is empty.
    """
    directory = directories_of(partition).get(broker.broker_id, UNASSIGNED_DIRECTORY)
    return directory == LOST_DIRECTORY or is_online(broker, directory)
