"""An administrator of a cluster: topics, partitions, replicas, leaders, settings, brokers.

It knows the newest metadata that any node has, so that most of what it asks for makes sense. It
asks any broker, and does not try again: whether a request took effect shows in the metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random as Generator
from typing import Protocol

from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.sim.cluster_run.clients import ClusterClient, ClusterRunOfClients
from ottla.sim.cluster_run.history import PartitionKey
from ottla.sim.cluster_run.topics import INTERNAL, LASTING, LOOSE, OUTPUT, TEMPORARY, is_loose
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.message import Message
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

TIMEOUT_MS = 3000
TOPIC_RESOURCE = 2
_PREFERRED, _UNCLEAN = 0, 1
_NAMES = (f"{TEMPORARY}0", f"{TEMPORARY}1", f"{LOOSE}0")
_MOST_GROWTH = 2
_SETTINGS = (
    ("min.insync.replicas", ("1", "2")),
    ("segment.bytes", ("1048576", "2097152")),
    ("max.message.bytes", ("1000000", "1048588")),
)
_EXPECTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.POLICY_VIOLATION,
    }
)


class ClusterRunOfAdmin(ClusterRunOfClients, Protocol):
    """What an administrator asks of the run."""

    def is_running(self, number: int) -> bool:
        """Return whether a broker's process is there."""
        ...

    def grown(self, key: PartitionKey) -> None:
        """Take note that a partition was added to a lasting topic."""
        ...

    def is_copied(self, topic_id: bytes) -> bool:
        """Return True if the object store has anything of a topic."""
        ...

    def tier_turned_off(self, topic_id: bytes) -> None:
        """Take note that somebody asks for the deletion of a topic's remote part."""
        ...


class ClusterAdmin(ClusterClient):
    """Does one thing after the other."""

    THINK_MS = (50.0, 200.0, 700.0)
    EXPECTED = _EXPECTED
    environment: ClusterRunOfAdmin

    def __init__(self, name: str, environment: ClusterRunOfAdmin, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self.is_finished = False
        """Set when nothing is to be changed any more."""
        self._grown = 0
        self._actions: tuple[Callable[[MetadataImage], tuple[Message, int] | None], ...] = (
            self._create,
            self._delete,
            self._grow,
            self._reassign,
            self._reassign,
            self._cancel,
            self._elect,
            self._elect,
            self._configure,
            self._unregister,
        )

    @property
    def is_done(self) -> bool:
        """True if it is finished, and waits for no answer."""
        return self.is_finished and not self.in_flight

    def act(self) -> None:
        if self.is_finished:
            return
        found = self.chance.choice(self._actions)(self.environment.image)
        if found is not None:
            self.ask(*found)

    # -- topics --------------------------------------------------------------------------

    def _create(self, image: MetadataImage) -> tuple[Message, int] | None:
        name = self.chance.choice(_NAMES)
        factor = self.chance.choice((2, 3, 3))
        topic = CreatableTopic(
            name=name,
            num_partitions=self.chance.choice((1, 2)),
            replication_factor=factor,
            configs=[
                CreatableTopicConfig(
                    name="unclean.leader.election.enable",
                    value="true" if is_loose(name) and self.chance.random() < 0.5 else "false",
                )
            ],
        )
        return CreateTopicsRequest(topics=[topic], timeout=TIMEOUT_MS), 7

    def _delete(self, image: MetadataImage) -> tuple[Message, int] | None:
        names = [name for name in _NAMES if name in image.topics]
        if not names:
            return None
        topic = image.topics[self.chance.choice(names)]
        state = DeleteTopicState(name=topic.name)
        if self.chance.random() < 0.5:
            state = DeleteTopicState(name=None, topic_id=topic.topic_id)
        return DeleteTopicsRequest(topics=[state], timeout=TIMEOUT_MS), 6

    def _grow(self, image: MetadataImage) -> tuple[Message, int] | None:
        topic = self._topic(image)
        if topic is None or topic.name.startswith((INTERNAL, OUTPUT)):
            return None
        if topic.name.startswith(LASTING):
            if self._grown >= _MOST_GROWTH:
                return None
            self._grown += 1
        grown = CreatePartitionsTopic(name=topic.name, count=len(topic.partitions) + 1)
        return CreatePartitionsRequest(topics=[grown], timeout=TIMEOUT_MS), 3

    # -- replicas and leaders ------------------------------------------------------------

    def _reassign(self, image: MetadataImage) -> tuple[Message, int] | None:
        found = self._partition(image)
        if found is None:
            return None
        topic, partition = found
        brokers = sorted(image.brokers)
        count = min(self.chance.choice((2, 3, 3, 4)), len(brokers))
        return _reassignment(topic, partition, self.chance.sample(brokers, count))

    def _cancel(self, image: MetadataImage) -> tuple[Message, int] | None:
        moving = [
            (topic, partition)
            for topic in image.topics.values()
            for partition in topic.partitions
            if partition.adding_replicas or partition.removing_replicas
        ]
        return _reassignment(*self.chance.choice(moving), None) if moving else None

    def _elect(self, image: MetadataImage) -> tuple[Message, int] | None:
        found = self._partition(image)
        if found is None:
            return None
        topic, partition = found
        is_unclean = is_loose(topic.name) and self.chance.random() < 0.5
        request = ElectLeadersRequest(
            election_type=_UNCLEAN if is_unclean else _PREFERRED,
            topic_partitions=[
                TopicPartitions(topic=topic.name, partitions=[partition.partition_id])
            ],
            timeout=TIMEOUT_MS,
        )
        return request, 2

    # -- settings and brokers ------------------------------------------------------------

    def _configure(self, image: MetadataImage) -> tuple[Message, int] | None:
        topic = self._topic(image)
        if topic is None:
            return None
        name, values = self.chance.choice(_SETTINGS)
        config = AlterableConfig(name=name, config_operation=0, value=self.chance.choice(values))
        if self.chance.random() < 0.2:
            config = AlterableConfig(name=name, config_operation=1, value=None)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=[config]
        )
        return IncrementalAlterConfigsRequest(resources=[resource]), 1

    def _unregister(self, image: MetadataImage) -> tuple[Message, int] | None:
        """Unregister a broker that is away and has no replicas."""
        used = {
            replica
            for topic in image.topics.values()
            for partition in topic.partitions
            for replica in partition.replicas
        }
        gone = [
            number
            for number in sorted(image.brokers)
            if number not in used and not self.environment.is_running(number)
        ]
        return (UnregisterBrokerRequest(broker_id=self.chance.choice(gone)), 0) if gone else None

    # -- choices -------------------------------------------------------------------------

    def _topic(self, image: MetadataImage) -> TopicImage | None:
        names = sorted(image.topics)
        return image.topics[self.chance.choice(names)] if names else None

    def _partition(self, image: MetadataImage) -> tuple[TopicImage, PartitionImage] | None:
        topic = self._topic(image)
        if topic is None or not topic.partitions:
            return None
        return topic, self.chance.choice(topic.partitions)

    # -- answers -------------------------------------------------------------------------

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        codes = _codes(exchange.reply)
        if not codes <= self.EXPECTED:
            names = sorted(ErrorCode(code).name for code in codes)
            raise Violation(f"{exchange!r}: answered with {', '.join(names)}")
        if codes != {ErrorCode.NONE}:
            self.try_elsewhere()
        elif isinstance(exchange.request, CreatePartitionsRequest):
            (topic,) = exchange.request.topics
            if topic.name.startswith(LASTING):
                self.environment.grown((topic.name, topic.count - 1))


class SegmentSetter(ClusterClient):
    """Gives topics of the cluster itself small segments, so that there is something to clean."""

    THINK_MS = (50.0, 200.0)

    def __init__(
        self, name: str, environment: ClusterRunOfClients, chance: Generator, segment_bytes: int
    ) -> None:
        super().__init__(name, environment, chance)
        self._segment_bytes = segment_bytes
        self._names = [OFFSETS_TOPIC, TRANSACTIONS_TOPIC]

    def act(self) -> None:
        for name in self._names:
            if name in self.environment.image.topics:
                config = AlterableConfig(
                    name="internal.segment.bytes",
                    config_operation=0,
                    value=str(self._segment_bytes),
                )
                resource = AlterConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config]
                )
                self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1, note=name)
                return

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        codes = _codes(exchange.reply)
        if not codes <= _EXPECTED:
            raise Violation(f"{exchange!r}: answered with {exchange.reply}")
        if codes == {ErrorCode.NONE}:
            self._names = [name for name in self._names if name != exchange.note]
        else:
            self.try_elsewhere()


def _reassignment(
    topic: TopicImage, partition: PartitionImage, replicas: list[int] | None
) -> tuple[Message, int]:
    asked = ReassignablePartition(partition_index=partition.partition_id, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        timeout=TIMEOUT_MS, topics=[ReassignableTopic(name=topic.name, partitions=[asked])]
    )
    return request, 0


def _codes(value: object) -> set[int]:
    """Return all error codes of a reply."""
    if isinstance(value, list):
        return set().union(*map(_codes, value)) if value else set()
    if not isinstance(value, Message):
        return set()
    found: set[int] = set()
    for field in value.FIELDS:
        part = getattr(value, field.name)
        found |= {part} if field.name == "error_code" else _codes(part)
    return found
