"""Kafka's consumer protocol: subscriptions and assignments inside of the classic protocol.

Consumers exchange these bytes with each other. The broker reads and writes them for classic
members of a consumer group. Topics go by name here. Later versions only add fields, so a newer
version is read as the newest known one.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, Protocol, TypeVar

from ottla.coordinator.groups.consumer.assignment import Partitions, from_pairs
from ottla.metadata.image import MetadataImage
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.message import Message
from ottla.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

_VERSION: Final = Struct(">h")
_NEWEST: Final = min(
    ConsumerProtocolSubscription.MAX_VERSION, ConsumerProtocolAssignment.MAX_VERSION
)
M = TypeVar("M", bound=Message)


class TopicPartitions(Protocol):
    """Partitions of a topic in either message."""

    topic: str
    partitions: list[int]


def version_of(metadata: bytes) -> int:
    """Return the version of some metadata, at most the newest known. Raise DecodeError."""
    if len(metadata) < _VERSION.size:
        raise DecodeError("there is no version")
    version: int = _VERSION.unpack_from(metadata)[0]
    if version < 0:
        raise DecodeError(f"there is no version {version}")
    return min(version, _NEWEST)


def version_for(metadata: bytes) -> int:
    """Return the version for a response to a consumer: its own, or 0 if that is unreadable."""
    try:
        return version_of(metadata)
    except DecodeError:
        return 0


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return the subscription in a JoinGroup. Raise DecodeError if it is damaged."""
    return _read(ConsumerProtocolSubscription, metadata)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return an assignment, which may be empty. Raise DecodeError if it is damaged."""
    if not data:
        return ConsumerProtocolAssignment()
    return _read(ConsumerProtocolAssignment, data)


def write_assignment(partitions: Partitions, version: int, image: MetadataImage) -> bytes:
    """Return the bytes of an assignment in this version."""
    topics = [
        TopicPartition(topic=topic.name, partitions=sorted(partitions[topic.topic_id]))
        for topic in map(image.topics_by_id.get, partitions)
        if topic is not None
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=topics)
    return _VERSION.pack(version) + encoder(ConsumerProtocolAssignment, version)(message)


def by_id(topics: Iterable[TopicPartitions], image: MetadataImage) -> Partitions:
    """Return the partitions by topic id, without topics that no longer exist."""
    return from_pairs(
        (found.topic_id, topic.partitions)
        for topic in topics
        if (found := image.topics.get(topic.topic)) is not None
    )


def _read(message: type[M], data: bytes) -> M:
    return decoder(message, version_of(data))(data, _VERSION.size, len(data))[0]
