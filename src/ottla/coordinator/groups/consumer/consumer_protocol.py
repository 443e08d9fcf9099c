"""Kafka's consumer protocol: subscriptions and assignments inside of the classic protocol.

Consumers exchange these bytes with each other. The broker reads and writes them for classic
members of a consumer group. Topics go by name here. Later versions only add fields, so a newer
version is read as the newest known one.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

from ottla.coordinator.groups.consumer.assignment import Partitions, from_pairs
from ottla.metadata.image import MetadataImage
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.message import Field, Items, Message, as_list

_VERSION: Final = Struct(">h")
_NEWEST: Final = 3
M = TypeVar("M", bound=Message)


class TopicPartitions(Message):
    __slots__ = ("partitions", "topic")
    FIELDS = (Field("topic", "string", (0, 3)), Field("partitions", "array", (0, 3), of="int32"))

    def __init__(self, *, topic: str = "", partitions: Items[int] = ()) -> None:
        self.topic = topic
        self.partitions = as_list(partitions)


class Subscription(Message):
    """The topics that a consumer wants, and the partitions it owns."""

    __slots__ = ("generation_id", "owned_partitions", "rack_id", "topics", "user_data")
    MAX_VERSION = _NEWEST
    FIELDS = (
        Field("topics", "array", (0, 3), of="string"),
        Field("user_data", "bytes", (0, 3), nullable=(0, 3)),
        Field("owned_partitions", "array", (1, 3), of=TopicPartitions),
        Field("generation_id", "int32", (2, 3)),
        Field("rack_id", "string", (3, 3), nullable=(3, 3)),
    )

    def __init__(
        self,
        *,
        topics: Items[str] = (),
        user_data: bytes | None = None,
        owned_partitions: Items[TopicPartitions] = (),
        generation_id: int = -1,
        rack_id: str | None = None,
    ) -> None:
        self.topics = as_list(topics)
        self.user_data = user_data
        self.owned_partitions = as_list(owned_partitions)
        self.generation_id = generation_id
        self.rack_id = rack_id


class Assignment(Message):
    """The partitions that a consumer gets."""

    __slots__ = ("assigned_partitions", "user_data")
    MAX_VERSION = _NEWEST
    FIELDS = (
        Field("assigned_partitions", "array", (0, 3), of=TopicPartitions),
        Field("user_data", "bytes", (0, 3), nullable=(0, 3)),
    )

    def __init__(
        self,
        *,
        assigned_partitions: Items[TopicPartitions] = (),
        user_data: bytes | None = None,
    ) -> None:
        self.assigned_partitions = as_list(assigned_partitions)
        self.user_data = user_data


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


def read_subscription(metadata: bytes) -> Subscription:
    """Return the subscription in a JoinGroup. Raise DecodeError if it is damaged."""
    return _read(Subscription, metadata)


def read_assignment(data: bytes) -> Assignment:
    """Return an assignment, which may be empty. Raise DecodeError if it is damaged."""
    return _read(Assignment, data) if data else Assignment()


def write_assignment(partitions: Partitions, version: int, image: MetadataImage) -> bytes:
    """Return the bytes of an assignment in this version."""
    topics = [
        TopicPartitions(topic=topic.name, partitions=sorted(partitions[topic.topic_id]))
        for topic in map(image.topics_by_id.get, partitions)
        if topic is not None
    ]
    message = Assignment(assigned_partitions=topics)
    return _VERSION.pack(version) + encoder(Assignment, version)(message)


def by_id(topics: list[TopicPartitions], image: MetadataImage) -> Partitions:
    """Return the partitions by topic id, without topics that no longer exist."""
    return from_pairs(
        (found.topic_id, topic.partitions)
        for topic in topics
        if (found := image.topics.get(topic.topic)) is not None
    )


def _read(message: type[M], data: bytes) -> M:
    return decoder(message, version_of(data))(data, _VERSION.size, len(data))[0]
