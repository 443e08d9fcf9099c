"""The topics whose partitions a broker hosts, by the name or id in a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.replication.partition import Partition, Topic
from ottla.replication.replica_counts import ReplicaCounts

if TYPE_CHECKING:
    from ottla.replication.isr_changes import IsrChanges

_ID_BYTES = 16


class HostedTopics:
    """Look-up of partitions by the raw bytes of a request: name in UTF-8, or topic id."""

    __slots__ = ("by_id", "by_key", "counts", "image", "isr_changes")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        """The cluster's metadata, which knows the partitions that are elsewhere."""
        self.counts = ReplicaCounts()
        self.isr_changes: IsrChanges | None = None
        """Where leaders propose other ISRs; None on a broker that is a cluster of its own."""
        self.by_key: dict[bytes, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}

    def add(self, topic: Topic) -> None:
        """Host a topic, before any of its replicas has a role."""
        topic.counts = self.counts
        topic.isr_changes = self.isr_changes
        self.by_key[topic.key] = topic
        self.by_id[topic.topic_id] = topic

    def propose_through(self, isr_changes: IsrChanges) -> None:
        """Let leaders propose other ISRs, of the topics that are hosted already too."""
        self.isr_changes = isr_changes
        for topic in self.by_id.values():
            topic.isr_changes = isr_changes
        isr_changes.to_check.update({each.leader: None for each in self if each.leader is not None})

    def remove(self, topic_id: bytes) -> Topic | None:
        """Forget a topic, and return it. The caller has to remove its partitions."""
        topic = self.by_id.pop(topic_id, None)
        if topic is not None:
            del self.by_key[topic.key]
        return topic

    def remove_partition(self, partition: Partition) -> None:
        """Forget one replica, and its topic if it was the last one here."""
        topic = partition.topic
        del topic.partitions[partition.index]
        if not topic.partitions:
            del self.by_key[topic.key], self.by_id[topic.topic_id]

    def named(self, name: str) -> Topic | None:
        return self.by_key.get(name.encode())

    def partition_by_key(self, key: bytes, index: int) -> Partition:
        """Return a partition by the UTF-8 bytes of its topic's name; raise ApiError if unknown."""
        topic = self.by_key.get(key)
        partition = topic.partitions.get(index) if topic is not None else None
        if partition is None:
            raise self._absent(self.image.topics.get(key.decode(errors="replace")), index)
        return partition

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Return the partition of a topic with this id; raise ApiError if it is unknown."""
        topic = self.by_id.get(topic_id)
        partition = topic.partitions.get(index) if topic is not None else None
        if partition is None:
            known = self.image.topics_by_id.get(topic_id)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            raise self._absent(known, index)
        return partition

    def _absent(self, topic: TopicImage | None, index: int) -> ApiError:
        """Return the error for a partition that has no replica here."""
        if topic is not None and 0 <= index < len(topic.partitions):
            return ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"this broker has no replica of {topic.name}-{index}",
            )
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def partition_named(self, name: str, index: int) -> Partition:
        return self.partition_by_key(name.encode(), index)

    def __iter__(self) -> Iterator[Partition]:
        for topic in self.by_key.values():
            yield from topic.partitions.values()

    def __len__(self) -> int:
        return sum(len(topic.partitions) for topic in self.by_key.values())
