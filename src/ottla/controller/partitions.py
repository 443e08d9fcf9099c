"""Decisions about new partitions of topics (KIP-195)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ottla.controller.assignments import check_assignment, new_partition
from ottla.controller.decision import Decision, check_number, plain
from ottla.controller.placement import place
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import Random
from ottla.wire.message import Message


class MorePartitions(NamedTuple):
    """A topic and its new number of partitions; assignments are for the added ones."""

    name: str
    num_partitions: int
    assignments: Sequence[Sequence[int]] | None = None


class GrownTopic(NamedTuple):
    """The result for one topic."""

    name: str
    error: ApiError | None = None


def create_partitions(
    image: MetadataImage, random: Random, topics: Sequence[MorePartitions]
) -> Decision[GrownTopic]:
    """Decide about partitions to add; a topic named twice gets one result, an error."""
    times = Counter(topic.name for topic in topics)
    records: list[Message] = []
    results = []
    for topic in {topic.name: topic for topic in topics}.values():
        try:
            if times[topic.name] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"The request names the topic {topic.name} twice"
                )
            records.extend(_grow(image, random, topic, len(records)))
            results.append(GrownTopic(topic.name))
        except ApiError as error:
            results.append(GrownTopic(topic.name, plain(error)))
    return Decision(records, results)


def _grow(
    image: MetadataImage, random: Random, wanted: MorePartitions, already: int
) -> list[Message]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {wanted.name}")
    have = len(topic.partitions)
    if wanted.num_partitions <= have:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} has {have} partitions already:"
            f" {wanted.num_partitions} would not be an increase",
        )
    check_number(already + wanted.num_partitions - have, "new partitions")
    replicas = _new_replicas(image, random, topic, wanted)
    return [
        new_partition(image, topic.topic_id, have + index, ids)
        for index, ids in enumerate(replicas)
    ]


def _new_replicas(
    image: MetadataImage, random: Random, topic: TopicImage, wanted: MorePartitions
) -> list[tuple[int, ...]]:
    count = wanted.num_partitions - len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return place(image.brokers.values(), count, factor, random)
    if len(wanted.assignments) != count:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count} partitions are to be added to {topic.name}, but the manual assignment has"
            f" {len(wanted.assignments)}",
        )
    for ids in wanted.assignments:
        check_assignment(image, ids, factor)
    return [tuple(ids) for ids in wanted.assignments]
