"""Decisions about creating and deleting topics.

A request is checked topic by topic, in Kafka's order: name, existence, settings, then
partitions and replicas. One topic that is refused does not keep the others from being made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.definition import ConfigError
from ottla.config.topic import log_config
from ottla.controller.assignments import check_assignment, new_partition
from ottla.controller.decision import Decision, check_number, check_value, plain
from ottla.controller.placement import place
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.records import ConfigRecord, RemoveTopicRecord, TopicRecord
from ottla.model.config_resources import ResourceType
from ottla.model.errors import (
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    ApiError,
    ErrorCode,
)
from ottla.model.ids import INTERNAL_TOPICS, METADATA_TOPIC, ZERO_UUID
from ottla.model.steps import Steps, count_in_steps, in_steps
from ottla.model.topic_names import check_topic_name, collision_key, may_collide
from ottla.ports import Random
from ottla.wire.message import Message

DEFAULT = -1
DUPLICATE_TOPIC = "Duplicate topic name."


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
) -> Steps[Decision[CreatedTopic]]:
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

    def decide(self, topics: Sequence[NewTopic]) -> Steps[Decision[CreatedTopic]]:
        times = yield from count_in_steps(topic.name for topic in topics)
        results: dict[str, CreatedTopic] = {}
        for topic in topics:
            if topic.name not in results:
                results[topic.name] = yield from self._result(topic, times[topic.name])
            yield
        return Decision(self._records, list(results.values()))

    def _result(self, topic: NewTopic, times: int) -> Steps[CreatedTopic]:
        try:
            if times > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, DUPLICATE_TOPIC)
            self._topics += 1
            check_number(self._topics, "topics")
            return (yield from self._create(topic))
        except ApiError as error:
            return CreatedTopic(topic.name, plain(error))

    def _create(self, topic: NewTopic) -> Steps[CreatedTopic]:
        self._check_name(topic.name)
        self._check_configs(topic)
        replicas = yield from self._replicas(topic)
        self._new_partitions += len(replicas)
        topic_id = self._random.uuid()
        self._records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        self._records.extend(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value
            )
            for name, value in dict(topic.configs).items()
        )
        self._records += yield from in_steps(
            lambda each: new_partition(self._image, topic_id, *each), enumerate(replicas)
        )
        if may_collide(topic.name):
            self._colliding[collision_key(topic.name)] = topic.name
        return CreatedTopic(topic.name, None, topic_id, len(replicas), len(replicas[0]))

    def _check_name(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Creation of internal topic {METADATA_TOPIC} is prohibited.",
            )
        check_topic_name(name)
        if name in self._image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._image.colliding_topic(name)
        if other is None and may_collide(name):
            other = self._colliding.get(collision_key(name))
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )

    def _check_configs(self, topic: NewTopic) -> None:
        configs: dict[str, str] = {}
        for name, value in topic.configs:
            if value is None:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}"
                )
            check_value(value)
            configs[name] = value
        try:
            log_config(self._config, configs)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, "; ".join(error.errors)) from error

    def _replicas(self, topic: NewTopic) -> Steps[list[tuple[int, ...]]]:
        if topic.assignments:
            return (yield from self._assigned(topic))
        count, factor = topic.num_partitions, topic.replication_factor
        if factor < DEFAULT or factor == 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if count < DEFAULT or count == 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        count = self._config.topics.num_partitions if count == DEFAULT else count
        factor = self._config.topics.default_replication_factor if factor == DEFAULT else factor
        check_number(self._new_partitions + count, "new partitions")
        return (yield from place(self._image.brokers.values(), count, factor, self._random))

    def _assigned(self, topic: NewTopic) -> Steps[list[tuple[int, ...]]]:
        for number, what in (
            (topic.replication_factor, "replication factor"),
            (topic.num_partitions, "number of partitions"),
        ):
            if number != DEFAULT:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        check_number(self._new_partitions + len(topic.assignments), "new partitions")
        by_index: dict[int, Sequence[int]] = {}
        for index, ids in topic.assignments:
            if index in by_index:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {index}",
                )
            by_index[index] = ids
        if sorted(by_index) != list(range(len(by_index))):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        factor: int | None = None
        for index in range(len(by_index)):
            check_assignment(self._image, by_index[index], factor)
            factor = len(by_index[index])
            yield
        return [tuple(by_index[index]) for index in range(len(by_index))]


def delete_topics(
    image: MetadataImage, config: BrokerConfig, topics: Sequence[UnwantedTopic]
) -> Steps[Decision[DeletedTopic]]:
    """Decide about topics to delete; one that is named twice gets one result, an error."""
    times = yield from count_in_steps(topics)
    doomed: set[bytes] = set()
    results = yield from in_steps(lambda each: _delete(image, config, *each, doomed), times.items())
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
                "Topic deletion is disabled.",
            )
        if times > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, DUPLICATE_TOPIC)
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
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Neither topic name nor id were specified."
            if name is None
            else "You may not specify both topic name and topic id.",
        )
    if name is None:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID)
    else:
        topic = image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
    if topic.name in INTERNAL_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic.name} is an internal topic and cannot be deleted",
        )
    return topic
