"""Brokers that come and go: they are fenced, unfenced, shut down and unregistered.

A fenced broker leads nothing and is in no ISR. All its partitions change with it, in one decision,
so that a crash keeps all of it or nothing. It may have thousands of partitions, so they are looked
at in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from ottla.config.broker import BrokerConfig
from ottla.config.topic import usable_log_config
from ottla.controller.assignments import directory_of
from ottla.controller.eligible_leaders import has_eligible_leaders
from ottla.controller.partition_change import ChangeRules, change_partition
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, UNKNOWN_DIRECTORY
from ottla.model.steps import Steps
from ottla.wire.message import Message

FENCE, UNFENCE = 1, -1
_PARTITIONS_A_STEP: Final = 50

ChangeOf: TypeAlias = Callable[[TopicImage, PartitionImage], PartitionChangeRecord | None]
"""Returns the record that changes a partition, or None if it stays as it is."""


class PartitionRules:
    """The rules for partitions of an image, as the settings of each topic say."""

    def __init__(
        self,
        image: MetadataImage,
        config: BrokerConfig,
        is_active: Callable[[int], bool] | None = None,
    ) -> None:
        self._image = image
        self._config = config
        self._is_active = is_active or (lambda broker_id: is_active_in(image.brokers, broker_id))
        self._has_elr = has_eligible_leaders(image)
        self._rules: dict[str, ChangeRules] = {}

    def of(self, topic: str) -> ChangeRules:
        """Return the rules for the partitions of a topic."""
        rules = self._rules.get(topic)
        if rules is None:
            settings, _ = usable_log_config(self._config, self._image.topic_config(topic))
            rules = self._rules[topic] = ChangeRules(
                self._is_active,
                settings.unclean_leader_election_enable,
                settings.min_insync_replicas,
                self._has_elr,
                self._directory_of,
                self._is_online,
            )
        return rules

    def _directory_of(self, broker_id: int) -> bytes:
        return directory_of(self._image, broker_id)

    def _is_online(self, broker_id: int, directory: bytes) -> bool:
        return is_online(self._image.brokers.get(broker_id), directory)


def is_online(broker: BrokerImage | None, directory: bytes) -> bool:
    """Return True if a broker can use a log directory, or it is not known in which a replica is."""
    if directory in (UNKNOWN_DIRECTORY, UNASSIGNED_DIRECTORY):
        return True
    if broker is None or directory == LOST_DIRECTORY:
        return False
    return not broker.log_dirs or directory in broker.log_dirs


def is_active_in(brokers: Mapping[int, BrokerImage], broker_id: int) -> bool:
    """Return True if a broker is registered, unfenced and does not shut down."""
    broker = brokers.get(broker_id)
    return broker is not None and broker.active


def fence(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[list[Message]]:
    """Return the records that fence a broker, and take its partitions from it."""
    broker = image.brokers[broker_id]
    if broker.fenced:
        return []
    change = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=FENCE
    )
    moved = yield from _without(image, config, broker_id)
    return [*moved, change]


def unfence(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[list[Message]]:
    """Return the records that unfence a broker, and let it lead partitions without a leader."""
    broker = image.brokers[broker_id]
    if not broker.fenced:
        return []
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=UNFENCE
    )
    rules = PartitionRules(
        image, config, lambda other: other == broker_id or is_active_in(image.brokers, other)
    )

    def change(topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord | None:
        if partition.leader != NO_LEADER or broker_id not in partition.replicas:
            return None
        return change_partition(topic.topic_id, partition, rules.of(topic.name))

    led = yield from change_all(image, change)
    return [record, *led]


def shut_down(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[list[Message]]:
    """Return the records that begin a controlled shutdown: others take its partitions first."""
    broker = image.brokers[broker_id]
    if broker.in_controlled_shutdown:
        return []
    change = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=1
    )
    moved = yield from _without(image, config, broker_id)
    return [change, *moved]


def can_be_spared(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[bool]:
    """Return False if a broker's shutdown would stop writes that another replica will soon allow.

    That is so if a partition has just enough in-sync replicas for acks=all, this broker is one of
    them, and another active broker has a replica that is not in sync yet.
    """
    rules = PartitionRules(image, config)

    def is_needed(topic: TopicImage, partition: PartitionImage) -> bool:
        if broker_id not in partition.isr or len(partition.isr) >= len(partition.replicas):
            return False
        left = len(partition.isr) - 1
        required = min(rules.of(topic.name).min_insync_replicas, len(partition.replicas))
        is_catching_up = any(
            replica not in partition.isr and is_active_in(image.brokers, replica)
            for replica in partition.replicas
        )
        return left < required <= left + 1 and is_catching_up

    return not (yield from _any_partition(image, is_needed))


def unregister(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[list[Message]]:
    """Return the records that remove a broker for good. Raise BROKER_ID_NOT_REGISTERED."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    gone = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    moved = yield from _without(image, config, broker_id)
    return [*moved, gone]


def return_unclean(
    image: MetadataImage, config: BrokerConfig, broker_id: int
) -> Steps[list[Message]]:
    """Return the changes for a broker that comes back and has not been shut down cleanly.

    Its logs may lack their last records. So it is no eligible leader until it is in sync again.
    """
    if not has_eligible_leaders(image):
        return []
    rules = rules_without(image, config, broker_id)

    def change(topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord | None:
        if broker_id not in partition.isr and broker_id not in partition.eligible_leader_replicas:
            return None
        isr = [replica for replica in partition.isr if replica != broker_id]
        return change_partition(
            topic.topic_id, partition, rules.of(topic.name), isr=isr, lost=(broker_id,)
        )

    return (yield from change_all(image, change))


def leads_nothing(image: MetadataImage, broker_id: int) -> Steps[bool]:
    """Return True if no partition has this broker as its leader."""
    leads = yield from _any_partition(image, lambda topic, partition: partition.leader == broker_id)
    return not leads


def _without(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[list[Message]]:
    """Return the changes of all partitions that a broker leads or is in sync with."""
    rules = rules_without(image, config, broker_id)

    def change(topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord | None:
        if broker_id not in partition.isr and partition.leader != broker_id:
            return None
        isr = [replica for replica in partition.isr if replica != broker_id]
        return change_partition(topic.topic_id, partition, rules.of(topic.name), isr=isr)

    return (yield from change_all(image, change))


def rules_without(image: MetadataImage, config: BrokerConfig, broker_id: int) -> PartitionRules:
    """Return the rules as if a broker were not active."""
    return PartitionRules(
        image, config, lambda other: other != broker_id and is_active_in(image.brokers, other)
    )


def change_all(image: MetadataImage, change: ChangeOf) -> Steps[list[Message]]:
    """Return the records that change the partitions of all topics."""
    records: list[Message] = []
    for number, (topic, partition) in enumerate(_all_partitions(image), 1):
        record = change(topic, partition)
        if record is not None:
            records.append(record)
        if not number % _PARTITIONS_A_STEP:
            yield
    return records


def _any_partition(
    image: MetadataImage, holds: Callable[[TopicImage, PartitionImage], bool]
) -> Steps[bool]:
    """Return True if something holds for a partition of any topic."""
    for number, (topic, partition) in enumerate(_all_partitions(image), 1):
        if holds(topic, partition):
            return True
        if not number % _PARTITIONS_A_STEP:
            yield
    return False


def _all_partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for topic in image.topics.values():
        for partition in topic.partitions:
            yield topic, partition
