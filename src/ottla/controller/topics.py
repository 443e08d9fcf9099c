"""Decisions about creating and deleting topics.

A request is checked topic by topic, in Kafka's order: name, existence, settings, then
partitions and replicas. One topic that is refused does not keep the others from being made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.definition import ConfigError
from ottla.config.topic import log_config
from ottla.controller.assignments import check_assignment, new_partition
from ottla.controller.decision import Decision, check_number, plain
from ottla.controller.placement import place
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.records import ConfigRecord, RemoveTopicRecord, TopicRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import INTERNAL_TOPICS, METADATA_TOPIC, ZERO_UUID, uuid_to_text
from ottla.model.resources import ResourceType
from ottla.model.topic_names import check_topic_name, collision_key, may_collide
from ottla.ports import Random
from ottla.wire.message import Message

DEFAULT = -1


class NewTopic(NamedTuple):
    """A topic to create; -1 means the broker's default. Assignments replace both numbers."""

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class CreatedTopic(NamedTuple):
    """The result for a topic to create."""

    name: str
    error: ApiError | None = None
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1


class UnwantedTopic(NamedTuple):
    """A topic to delete, by its name or its id."""

    name: str | None
    topic_id: bytes = ZERO_UUID


class DeletedTopic(NamedTuple):
    """The result for a topic to delete."""

    name: str | None
    topic_id: bytes
    error: ApiError | None = None


def create_topics(
    image: MetadataImage, config: BrokerConfig, random: Random, topics: Sequence[NewTopic]
) -> Decision[CreatedTopic]:
    """Decide about topics to create; a name given twice gets one result, an error."""
    return _Creation(image, config, random).decide(topics)


class _Creation:
    """One CreateTopics request: the records decided so far."""

    def __init__(self, image: MetadataImage, config: BrokerConfig, random: Random) -> None:
        self._image = image
        self._config = config
        self._random = random
        self._records: list[Message] = []
        self._topics = 0
        self._new_partitions = 0
        self._colliding: dict[str, str] = {}

    def decide(self, topics: Sequence[NewTopic]) -> Decision[CreatedTopic]:
        times = Counter(topic.name for topic in topics)
        once = {topic.name: topic for topic in topics}
        results = [self._result(once[name], count) for name, count in times.items()]
        return Decision(self._records, results)

    def _result(self, topic: NewTopic, times: int) -> CreatedTopic:
        try:
            if times > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"The request names the topic {topic.name} twice"
                )
            self._topics += 1
            check_number(self._topics, "topics")
            return self._create(topic)
        except ApiError as error:
            return CreatedTopic(topic.name, plain(error))

    def _create(self, topic: NewTopic) -> CreatedTopic:
        self._check_name(topic.name)
        self._check_configs(topic)
        replicas = self._replicas(topic)
        self._new_partitions += len(replicas)
        topic_id = self._random.uuid()
        self._records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        self._records.extend(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value
            )
            for name, value in topic.configs
        )
        self._records.extend(
            new_partition(self._image, topic_id, index, ids) for index, ids in enumerate(replicas)
        )
        if may_collide(topic.name):
            self._colliding[collision_key(topic.name)] = topic.name
        return CreatedTopic(topic.name, None, topic_id, len(replicas), len(replicas[0]))

    def _check_name(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} holds the cluster's own metadata"
            )
        check_topic_name(name)
        if name in self._image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"The topic {name} already exists")
        other = self._image.colliding_topic(name)
        if other is None and may_collide(name):
            other = self._colliding.get(collision_key(name))
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"The topic {name} collides with {other}: names must differ in more than '.'"
                " and '_'",
            )

    def _check_configs(self, topic: NewTopic) -> None:
        configs: dict[str, str] = {}
        for name, value in topic.configs:
            if value is None:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"The topic setting {name} has no value")
            if name in configs:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"The topic setting {name} is set twice")
            configs[name] = value
        try:
            log_config(self._config, configs)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, "; ".join(error.errors)) from error

    def _replicas(self, topic: NewTopic) -> list[tuple[int, ...]]:
        if topic.assignments:
            return self._assigned(topic)
        count, factor = topic.num_partitions, topic.replication_factor
        if factor < DEFAULT or factor == 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor {factor} must be at least 1, or -1 for the default",
            )
        if count < DEFAULT or count == 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The number of partitions {count} must be at least 1, or -1 for the default",
            )
        count = self._config.topics.num_partitions if count == DEFAULT else count
        factor = self._config.topics.default_replication_factor if factor == DEFAULT else factor
        check_number(self._new_partitions + count, "new partitions")
        return place(self._image.brokers.values(), count, factor, self._random)

    def _assigned(self, topic: NewTopic) -> list[tuple[int, ...]]:
        if topic.replication_factor != DEFAULT or topic.num_partitions != DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "With a manual assignment the number of partitions and the replication factor"
                " must be -1",
            )
        check_number(self._new_partitions + len(topic.assignments), "new partitions")
        by_index = dict(topic.assignments)
        if sorted(index for index, _ in topic.assignments) != list(range(len(topic.assignments))):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "A manual assignment must have each partition from 0 on exactly once",
            )
        factor: int | None = None
        for index in range(len(by_index)):
            check_assignment(self._image, by_index[index], factor)
            factor = len(by_index[index])
        return [tuple(by_index[index]) for index in range(len(by_index))]


def delete_topics(
    image: MetadataImage, config: BrokerConfig, topics: Sequence[UnwantedTopic]
) -> Decision[DeletedTopic]:
    """Decide about topics to delete; one that is named twice gets one result, an error."""
    times = Counter(topics)
    doomed: set[bytes] = set()
    results = [_delete(image, config, topic, count, doomed) for topic, count in times.items()]
    return Decision(
        [RemoveTopicRecord(topic_id=result.topic_id) for result in results if not result.error],
        results,
    )


def _delete(
    image: MetadataImage,
    config: BrokerConfig,
    unwanted: UnwantedTopic,
    times: int,
    doomed: set[bytes],
) -> DeletedTopic:
    try:
        if not config.topics.delete_topic_enable:
            raise ApiError(
                ErrorCode.TOPIC_DELETION_DISABLED,
                "Topics cannot be deleted: delete.topic.enable is false",
            )
        if times > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The request names this topic twice")
        topic = _unwanted_topic(image, unwanted)
        if topic.topic_id in doomed:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "The request has this topic by name and by id"
            )
    except ApiError as error:
        return DeletedTopic(unwanted.name, unwanted.topic_id, plain(error))
    doomed.add(topic.topic_id)
    return DeletedTopic(topic.name, topic.topic_id)


def _unwanted_topic(image: MetadataImage, unwanted: UnwantedTopic) -> TopicImage:
    name, topic_id = unwanted
    if (name is None) == (topic_id == ZERO_UUID):
        which = "neither a name nor an id" if name is None else "both a name and an id"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"A topic to delete has {which}")
    if name is None:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has the id {uuid_to_text(topic_id)}"
            )
    else:
        topic = image.topics.get(name)
        if topic is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name} to delete"
            )
    if topic.name in INTERNAL_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic.name} is an internal topic and cannot be deleted",
        )
    return topic
