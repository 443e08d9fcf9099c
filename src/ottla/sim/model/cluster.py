"""What clients were told about topics, settings and ids.

Metadata that was acknowledged is there for ever, whatever crashes. What a crash left
unanswered is in `unanswered`, in the order it was handled, until the next audit sees which
of it happened.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.sim.model.batch import Sent
from ottla.sim.model.groups import GroupsModel
from ottla.sim.model.partition import PartitionModel
from ottla.sim.network.exchange import Exchange, Violation


class TopicModel:
    """One topic. `topic_id` is empty until somebody was told it."""

    __slots__ = ("_retentions", "configs", "is_recompressed", "name", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, partitions: int, configs: dict[str, str]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[PartitionModel] = []
        self._retentions: list[tuple[str | None, str | None]] = []
        self.is_recompressed = False
        """Whether it ever was: then how large batches are stored is the broker's to know."""
        self.set_configs(configs)
        self.grow(partitions)

    def set_configs(self, configs: dict[str, str]) -> None:
        """Set the settings of the topic."""
        self.configs = configs
        self.is_recompressed |= configs.get("compression.type", "producer") != "producer"
        if "delete" in configs.get("cleanup.policy", "delete"):
            self._retentions.append((configs.get("retention.ms"), configs.get("retention.bytes")))

    def shortest_retention_ms(self, default_ms: int) -> int:
        """Return the shortest retention the topic ever had; -1 if it always kept everything."""
        found = [default_ms if ms is None else int(ms) for ms, _ in self._retentions]
        return min((ms for ms in found if ms >= 0), default=-1)

    def smallest_retention_bytes(self) -> int:
        """Return the smallest retention.bytes the topic ever had; -1 if there was none."""
        found = [-1 if size is None else int(size) for _, size in self._retentions]
        return min((size for size in found if size >= 0), default=-1)

    def grow(self, count: int) -> None:
        """Set the number of partitions, which only grows."""
        for index in range(len(self.partitions), count):
            self.partitions.append(PartitionModel(f"{self.name}-{index}"))

    def setting(self, name: str, default: str) -> str:
        return self.configs.get(name, default)


class Place(NamedTuple):
    """A partition and its topic."""

    topic: TopicModel
    partition: PartitionModel
    partition_index: int


class ClusterModel:
    """Everything clients know."""

    def __init__(self, *, auto_creates: bool = True) -> None:
        self.auto_creates = auto_creates
        self.topics: dict[str, TopicModel] = {}
        self.sents: dict[int, Sent] = {}
        self.producer_ids: set[int] = set()
        self.unanswered: list[Exchange] = []
        self.old_ids: set[bytes] = set()
        self.groups = GroupsModel()

    def add_topic(
        self, name: str, topic_id: bytes, partitions: int, configs: dict[str, str]
    ) -> TopicModel:
        """Add a topic that was created."""
        if topic_id in self.old_ids:
            raise Violation(f"the id of {name} belonged to a deleted topic")
        topic = self.topics[name] = TopicModel(name, topic_id, partitions, configs)
        return topic

    def remove_topic(self, name: str) -> None:
        """Remove a topic with all that is in it."""
        topic = self.topics.pop(name)
        self.groups.topic_removed(name)
        for partition in topic.partitions:
            partition.forget()
        if topic.topic_id:
            self.old_ids.add(topic.topic_id)

    def learn_id(self, topic: TopicModel, topic_id: bytes) -> None:
        """Learn the id of a topic that somebody was told."""
        if topic.topic_id and topic.topic_id != topic_id:
            raise Violation(f"{topic.name} had another id")
        topic.topic_id = topic_id

    def place(self, name: str, index: int) -> Place | None:
        """Return a partition by its topic's name; None if there is none."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return Place(topic, topic.partitions[index], index)

    def place_by_id(self, topic_id: bytes, index: int) -> Place | None:
        """Return a partition by its topic's id."""
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return self.place(topic.name, index)
        return None

    def places(self) -> list[Place]:
        """Return all partitions."""
        return [
            Place(topic, partition, index)
            for topic in self.topics.values()
            for index, partition in enumerate(topic.partitions)
        ]
