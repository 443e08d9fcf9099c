"""The cluster at one offset of the metadata log: topics, settings, brokers, features, ids.

An image is immutable. `MetadataDelta` takes the records that follow it and makes the next
image, so two nodes that replayed the same records have the same image. Parts that did not
change are shared between images: the mappings must not be modified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from ottla.config.listeners import Endpoint
from ottla.model.config_resources import ResourceType
from ottla.model.topic_names import collision_key, may_collide
from ottla.model.value import Value
from ottla.wire.message import Message


class PartitionImage(NamedTuple):
    """The replicas of a partition, and which of them leads."""

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


class TopicImage(NamedTuple):
    """A topic and its partitions, each at the index of its id."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...] = ()


class FeatureRange(NamedTuple):
    """The levels of one feature that a node supports (KIP-584)."""

    name: str
    min_level: int
    max_level: int


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
    features: tuple[FeatureRange, ...] = ()

    @property
    def active(self) -> bool:
        """True if the broker may be in the ISR of a new partition."""
        return not (self.fenced or self.in_controlled_shutdown)


class ControllerImage(Value):
    """A registered controller (KIP-919)."""

    controller_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    zk_migration_ready: bool = False
    features: tuple[FeatureRange, ...] = ()


SecurityKey: TypeAlias = tuple[Any, ...]
"""Names a permission, a password, a token or a quota: see `security_delta`."""

_NO_CONFIGS: Mapping[str, str] = {}


class MetadataImage(NamedTuple):
    """All metadata of one cluster, as of `end_offset` of the metadata log."""

    cluster_id: str = ""
    end_offset: int = 0
    """The offset after the last record in the image."""
    epoch: int = 0
    """The leader epoch of that record."""
    topics: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[bytes, TopicImage] = {}
    configs: Mapping[tuple[int, str], Mapping[str, str]] = {}
    brokers: Mapping[int, BrokerImage] = {}
    controllers: Mapping[int, ControllerImage] = {}
    features: Mapping[str, int] = {}
    next_producer_id: int = 0
    colliding_names: Mapping[str, frozenset[str]] = {}
    """Topic names with '.' or '_', by their collision key."""
    security: Mapping[SecurityKey, Message] = {}
    """The records of permissions, passwords, tokens and quotas."""

    def config_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the dynamic settings of a topic, a group, a broker ("1") or all brokers ("")."""
        return self.configs.get((resource_type, name), _NO_CONFIGS)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """Return the settings of a topic that differ from the broker's defaults."""
        return self.configs.get((ResourceType.TOPIC, name), _NO_CONFIGS)

    def colliding_topic(self, name: str) -> str | None:
        """Return an existing topic whose name differs from this one only in '.' and '_'."""
        others = self.colliding_names.get(collision_key(name), ()) if may_collide(name) else ()
        return next((other for other in sorted(others) if other != name), None)
