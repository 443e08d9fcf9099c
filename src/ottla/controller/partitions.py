"""Decisions about new partitions of topics (KIP-195)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.controller.assignments import check_assignment, new_partition
from ottla.controller.decision import Decision, check_number, plain
from ottla.controller.placement import place
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.records import PartitionRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, count_in_steps, in_steps
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
) -> Steps[Decision[GrownTopic]]:
    """Decide about partitions to add; a topic named twice gets one result, an error."""
    times = yield from count_in_steps(topic.name for topic in topics)
    records: list[Message] = []
    results: dict[str, GrownTopic] = {}
    for topic in topics:
        yield
        if topic.name in results:
            continue
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += yield from _grow(image, random, topic, len(records))
            results[topic.name] = GrownTopic(topic.name)
        except ApiError as error:
            results[topic.name] = GrownTopic(topic.name, plain(error))
    return Decision(records, list(results.values()))


def _grow(
    image: MetadataImage, random: Random, wanted: MorePartitions, already: int
) -> Steps[list[PartitionRecord]]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {wanted.name}")
    have = len(topic.partitions)
    if wanted.num_partitions == have:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if wanted.num_partitions < have:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {have} partition(s);"
            f" {wanted.num_partitions} would not be an increase.",
        )
    check_number(already + wanted.num_partitions - have, "new partitions")
    replicas = yield from _new_replicas(image, random, topic, wanted)
    return (
        yield from in_steps(
            lambda each: new_partition(image, topic.topic_id, *each), enumerate(replicas, have)
        )
    )


def _new_replicas(
    image: MetadataImage, random: Random, topic: TopicImage, wanted: MorePartitions
) -> Steps[list[tuple[int, ...]]]:
    count = wanted.num_partitions - len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return (yield from place(image.brokers.values(), count, factor, random))
    if len(wanted.assignments) != count:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {count} additional partition(s), but only"
            f" {len(wanted.assignments)} assignment(s) were specified.",
        )
    for ids in wanted.assignments:
        check_assignment(image, ids, factor)
        yield
    return [tuple(ids) for ids in wanted.assignments]
