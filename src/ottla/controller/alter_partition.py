"""AlterPartition: the leader of a partition says which replicas are in sync (KIP-497, KIP-903)."""

from __future__ import annotations

from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.controller.broker_changes import PartitionRules
from ottla.controller.decision import Decision
from ottla.controller.partition_change import RECOVERED, RECOVERING, change_partition
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps

NO_EPOCH = -1


class IsrMember(NamedTuple):
    """A replica that is to be in sync, and the broker epoch it fetched with; -1 if unknown."""

    broker_id: int
    broker_epoch: int = NO_EPOCH


class IsrChange(NamedTuple):
    """What the leader asks for one partition."""

    topic_id: bytes
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    leader_recovery_state: int


class ChangedPartition(NamedTuple):
    """The result for one partition: how it is after the change, or why it did not change."""

    topic_id: bytes
    partition_id: int
    partition: PartitionImage | None
    error: ApiError | None


def check_broker(image: MetadataImage, broker_id: int, broker_epoch: int) -> None:
    """Raise STALE_BROKER_EPOCH if a request comes from an earlier process of a broker."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} has the epoch {broker.broker_epoch}, not {broker_epoch}",
        )


def alter_partitions(
    image: MetadataImage, config: BrokerConfig, leader_id: int, changes: list[IsrChange]
) -> Steps[Decision[ChangedPartition]]:
    """Decide on the ISRs of partitions that a broker leads."""
    rules = PartitionRules(image, config)
    decision: Decision[ChangedPartition] = Decision([], [])
    for change in changes:
        yield
        topic = image.topics_by_id.get(change.topic_id)
        try:
            partition = _checked(image, leader_id, change)
            assert topic is not None
            record = change_partition(
                change.topic_id,
                partition,
                rules.of(topic.name),
                isr=[member.broker_id for member in change.isr],
                leader_recovery_state=change.leader_recovery_state,
            )
        except ApiError as refusal:
            decision.results.append(
                ChangedPartition(change.topic_id, change.partition_id, None, refusal)
            )
            continue
        error = None
        if record is not None:
            decision.records.append(record)
            delta = MetadataDelta(image).replay_all([record])
            partition = delta.topics.changed[change.topic_id].partitions[change.partition_id]
            if partition.leader != leader_id:  # a reassignment has ended without this leader
                error = ApiError(ErrorCode.NEW_LEADER_ELECTED)
        decision.results.append(
            ChangedPartition(change.topic_id, change.partition_id, partition, error)
        )
    return decision


def _checked(image: MetadataImage, leader_id: int, change: IsrChange) -> PartitionImage:
    """Return the partition. Raise ApiError if the leader may not make this change."""
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= change.partition_id < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[change.partition_id]
    isr = [member.broker_id for member in change.isr]
    if change.leader_epoch > partition.leader_epoch or (
        change.partition_epoch > partition.partition_epoch
    ):
        raise ApiError(ErrorCode.NOT_CONTROLLER, "the leader knows more than this controller")
    if change.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if leader_id != partition.leader:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {leader_id} does not lead it")
    if change.partition_epoch < partition.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)
    if leader_id not in isr or len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{isr} cannot be the ISR")
    if change.leader_recovery_state == RECOVERING and len(isr) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a leader that recovers is alone in the ISR")
    if (partition.leader_recovery_state, change.leader_recovery_state) == (RECOVERED, RECOVERING):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the leader has recovered already")
    for member in change.isr:
        _check_member(image, member, leader_id)
    return partition


def _check_member(image: MetadataImage, member: IsrMember, leader_id: int) -> None:
    broker = image.brokers.get(member.broker_id)
    if member.broker_id == leader_id:
        return
    if broker is None or not broker.active:
        raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} is not active")
    if member.broker_epoch not in (NO_EPOCH, broker.broker_epoch):
        raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} was started again")
