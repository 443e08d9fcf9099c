"""The cluster as the metadata log describes it: topics, settings, brokers, ids.

`MetadataImage.apply` with a record of the log is the only way an image changes, so two
nodes that applied the same records have the same image. Parts of an image are immutable and
replaced, so a reader may keep one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.config.listeners import SECURITY_PROTOCOLS, Endpoint
from ottla.metadata.records import (
    NO_LEADER_CHANGE,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.serde import MetadataError
from ottla.model.ids import uuid_to_text
from ottla.model.resources import ResourceType
from ottla.model.topic_names import collision_key, may_collide
from ottla.wire.message import Message

_NO_CONFIGS: Mapping[str, str] = {}
_MAX_SHARED = 1024


class PartitionImage(NamedTuple):
    """Who holds a partition and who leads it."""

    partition_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0


class TopicImage:
    """A topic and its partitions, each at the index of its id."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[PartitionImage] = []


class BrokerImage(NamedTuple):
    """A registered broker."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()

    @property
    def active(self) -> bool:
        """Whether it may be in the ISR of a new partition."""
        return not (self.fenced or self.in_controlled_shutdown)


class MetadataImage:
    """All metadata of one cluster; changes by `apply` only."""

    def __init__(self, cluster_id: str = "") -> None:
        self.cluster_id = cluster_id
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self._colliding: dict[str, set[str]] = {}
        self._lists: dict[tuple[int, ...], tuple[int, ...]] = {}

    def apply(self, record: Message) -> None:
        """Take in one record of the metadata log; MetadataError when it contradicts the image."""
        apply = _APPLY.get(type(record))
        if apply is None:
            raise MetadataError(f"cannot apply a {type(record).__name__}")
        apply(self, record)

    def config_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings made while running for a topic, a broker ("1") or all brokers ("")."""
        return self.configs.get((resource_type, name), _NO_CONFIGS)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The settings of a topic that differ from the broker's defaults."""
        return self.configs.get((ResourceType.TOPIC, name), _NO_CONFIGS)

    def colliding_topic(self, name: str) -> str | None:
        """An existing topic whose name differs from this one only in '.' and '_'."""
        others = self._colliding.get(collision_key(name), ()) if may_collide(name) else ()
        return next((other for other in sorted(others) if other != name), None)

    def _topic(self, topic_id: bytes) -> TopicImage:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise MetadataError(f"no topic has the id {uuid_to_text(topic_id)}")
        return topic

    def _add_topic(self, record: TopicRecord) -> None:
        if record.name in self.topics or record.topic_id in self.topics_by_id:
            raise MetadataError(f"the topic {record.name} is created twice")
        topic = TopicImage(record.name, record.topic_id)
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
        if may_collide(record.name):
            self._colliding.setdefault(collision_key(record.name), set()).add(record.name)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        self.configs.pop((ResourceType.TOPIC, topic.name), None)
        if may_collide(topic.name):
            key = collision_key(topic.name)
            self._colliding[key].discard(topic.name)
            if not self._colliding[key]:
                del self._colliding[key]

    def _set_partition(self, record: PartitionRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = PartitionImage(
            partition_id=record.partition_id,
            replicas=self._share(record.replicas),
            isr=self._share(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories),
            removing_replicas=self._share(record.removing_replicas),
            adding_replicas=self._share(record.adding_replicas),
            eligible_leader_replicas=self._share(record.eligible_leader_replicas),
            last_known_elr=self._share(record.last_known_elr),
            leader_recovery_state=record.leader_recovery_state,
        )
        if record.partition_id == len(topic.partitions):
            topic.partitions.append(partition)
        elif 0 <= record.partition_id < len(topic.partitions):
            topic.partitions[record.partition_id] = partition
        else:
            raise MetadataError(
                f"partition {record.partition_id} of {topic.name} does not follow"
                f" its {len(topic.partitions)} partitions"
            )

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        if not 0 <= record.partition_id < len(topic.partitions):
            raise MetadataError(f"{topic.name} has no partition {record.partition_id} to change")
        old = topic.partitions[record.partition_id]
        topic.partitions[record.partition_id] = self._changed(old, record)

    def _changed(self, old: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
        """The partition after the change; a new leader begins a new leader epoch."""
        led = record.leader != NO_LEADER_CHANGE
        state = record.leader_recovery_state
        elr = record.eligible_leader_replicas
        return PartitionImage(
            partition_id=old.partition_id,
            replicas=self._or_old(record.replicas, old.replicas),
            isr=self._or_old(record.isr, old.isr),
            leader=record.leader if led else old.leader,
            leader_epoch=old.leader_epoch + led,
            partition_epoch=old.partition_epoch + 1,
            directories=tuple(
                old.directories if record.directories is None else record.directories
            ),
            removing_replicas=self._or_old(record.removing_replicas, old.removing_replicas),
            adding_replicas=self._or_old(record.adding_replicas, old.adding_replicas),
            eligible_leader_replicas=self._or_old(elr, old.eligible_leader_replicas),
            last_known_elr=self._or_old(record.last_known_elr, old.last_known_elr),
            leader_recovery_state=old.leader_recovery_state if state < 0 else state,
        )

    def _or_old(self, new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
        return old if new is None else self._share(new)

    def _share(self, ids: Sequence[int] | None) -> tuple[int, ...]:
        """The ids as a tuple that is kept once: most partitions have the same few lists."""
        if not ids:
            return ()
        if len(self._lists) > _MAX_SHARED:
            self._lists.clear()
        key = tuple(ids)
        return self._lists.setdefault(key, key)

    def _set_config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        # A new dict each time: whoever holds the old one keeps seeing what it saw.
        configs = dict(self.configs.get(key, _NO_CONFIGS))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if configs:
            self.configs[key] = configs
        else:
            self.configs.pop(key, None)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                Endpoint(e.name, e.host, e.port, _protocol(e.security_protocol))
                for e in record.end_points
            ),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
        )

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise MetadataError(
                f"broker {record.broker_id} is not registered with epoch {record.broker_epoch}"
            )
        self.brokers[record.broker_id] = broker._replace(
            fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=broker.in_controlled_shutdown
            or record.in_controlled_shutdown > 0,
            log_dirs=tuple(record.log_dirs) or broker.log_dirs,
        )

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        if self.brokers.pop(record.broker_id, None) is None:
            raise MetadataError(f"broker {record.broker_id} is not registered")

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _set_next_producer_id(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _do_nothing(self, record: Message) -> None:
        """A record that a quorum of one has no use for."""


def _protocol(number: int) -> str:
    if not 0 <= number < len(SECURITY_PROTOCOLS):
        raise MetadataError(f"unknown security protocol {number}")
    return SECURITY_PROTOCOLS[number]


_APPLY: dict[type[Message], Callable[..., None]] = {
    TopicRecord: MetadataImage._add_topic,
    RemoveTopicRecord: MetadataImage._remove_topic,
    PartitionRecord: MetadataImage._set_partition,
    PartitionChangeRecord: MetadataImage._change_partition,
    ConfigRecord: MetadataImage._set_config,
    RegisterBrokerRecord: MetadataImage._register_broker,
    BrokerRegistrationChangeRecord: MetadataImage._change_broker,
    UnregisterBrokerRecord: MetadataImage._unregister_broker,
    FeatureLevelRecord: MetadataImage._set_feature,
    ProducerIdsRecord: MetadataImage._set_next_producer_id,
    NoOpRecord: MetadataImage._do_nothing,
    ZkMigrationStateRecord: MetadataImage._do_nothing,
    RegisterControllerRecord: MetadataImage._do_nothing,
}
