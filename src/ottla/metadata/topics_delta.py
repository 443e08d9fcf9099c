"""Changes of topics: created, deleted, and the partitions that changed in each.

A topic that is created and deleted in one delta leaves no trace. A topic that is deleted
and created again under the same name has two ids, so it is in `deleted` and in `changed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeVar

from ottla.metadata.configs_delta import ConfigsDelta
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    NO_LEADER_CHANGE,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata.serde import MetadataError
from ottla.model.ids import uuid_to_text
from ottla.model.steps import ITEMS_A_STEP, Steps, run_to_end
from ottla.model.topic_names import collision_key, may_collide

T = TypeVar("T")
PARTITIONS_A_STEP: Final = 100


class TopicDelta:
    """One topic that was created or changed."""

    __slots__ = ("name", "num_partitions", "old", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, old: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.old = old
        """The topic before the delta; None if the delta creates it."""
        self.partitions: dict[int, PartitionImage] = {}
        """The partitions that are new or changed, as they are after the delta."""
        self.num_partitions = 0 if old is None else len(old.partitions)

    def old_partition(self, partition_id: int) -> PartitionImage | None:
        """Return the partition as it was before the delta; None if it is new."""
        if self.old is None or partition_id >= len(self.old.partitions):
            return None
        return self.old.partitions[partition_id]

    @property
    def has_new_partitions(self) -> bool:
        return self.num_partitions > (0 if self.old is None else len(self.old.partitions))

    def set(self, partition: PartitionImage) -> None:
        """Replace a partition, or add the next one."""
        partition_id = partition.partition_id
        if not 0 <= partition_id <= self.num_partitions:
            raise MetadataError(
                f"partition {partition_id} of {self.name} does not follow"
                f" its {self.num_partitions} partitions"
            )
        self.partitions[partition_id] = partition
        if partition_id == self.num_partitions:
            self.num_partitions += 1

    def current(self, partition_id: int) -> PartitionImage:
        """Return a partition as it is with the records replayed so far."""
        partition = self.partitions.get(partition_id) or self.old_partition(partition_id)
        if partition is None or partition_id < 0:
            raise MetadataError(f"{self.name} has no partition {partition_id} to change")
        return partition

    def clear_elr(self) -> Steps[None]:
        """Forget the eligible leader replicas of all partitions (KIP-966).

        That is a change of each partition that has some, with a partition epoch of its own.
        """
        for partition_id in range(self.num_partitions):
            if not (partition_id + 1) % PARTITIONS_A_STEP:
                yield
            partition = self.current(partition_id)
            if _has_elr(partition):
                self.partitions[partition_id] = partition._replace(
                    partition_epoch=partition.partition_epoch + 1,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                )

    def apply(self) -> TopicImage:
        """Return the topic after the delta."""
        if self.old is None:
            # Each partition follows the one before, so they are in order.
            return TopicImage(self.name, self.topic_id, tuple(self.partitions.values()))
        partitions = list(self.old.partitions)
        partitions += [None] * (self.num_partitions - len(partitions))  # type: ignore[list-item]
        for partition_id, partition in self.partitions.items():
            partitions[partition_id] = partition
        return TopicImage(self.name, self.topic_id, tuple(partitions))


class TopicsDelta:
    """All changes of topics since an image."""

    def __init__(self, image: MetadataImage, configs: ConfigsDelta) -> None:
        self._image = image
        self._configs = configs
        self.changed: dict[bytes, TopicDelta] = {}
        """Topics created or changed, by id."""
        self.deleted: dict[bytes, TopicImage] = {}
        """Topics of the image that are gone, as they were."""
        self._created_ids: dict[str, bytes] = {}

    def created(self) -> list[str]:
        """Return the names of the topics that the delta creates."""
        return list(self._created_ids)

    # -- replay --------------------------------------------------------------------------

    def create(self, record: TopicRecord) -> None:
        name, topic_id = record.name, record.topic_id
        if self._name_exists(name) or self._find(topic_id) is not None:
            raise MetadataError(f"the topic {name} is created twice")
        self.changed[topic_id] = TopicDelta(name, topic_id, None)
        self._created_ids[name] = topic_id

    def remove(self, record: RemoveTopicRecord) -> None:
        """Delete a topic with its settings."""
        topic = self._topic(record.topic_id)
        self.changed.pop(record.topic_id, None)
        if topic.old is None:
            del self._created_ids[topic.name]
        else:
            self.deleted[record.topic_id] = topic.old
        self._configs.remove_topic(topic.name)

    def set_partition(self, record: PartitionRecord) -> None:
        topic = self.changed.get(record.topic_id) or self._topic(record.topic_id)
        # By position: a start makes very many of them.
        topic.set(
            PartitionImage(
                record.partition_id,
                _shared(tuple(record.replicas)),
                _shared(tuple(record.isr)),
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                _shared(tuple(record.directories)),
                tuple(record.removing_replicas),
                tuple(record.adding_replicas),
                tuple(record.eligible_leader_replicas or ()),
                tuple(record.last_known_elr or ()),
                record.leader_recovery_state,
            )
        )

    def change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self.changed.get(record.topic_id) or self._topic(record.topic_id)
        topic.set(_changed(topic.current(record.partition_id), record))

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Forget the eligible leader replicas of one topic, or of all, in one go."""
        run_to_end(self.clear_elr_in_steps(record))

    def clear_elr_in_steps(self, record: ClearElrRecord) -> Steps[None]:
        """Forget the eligible leader replicas of one topic, or of all."""
        if record.topic_name:
            topic_id = self._id_of(record.topic_name)
            if topic_id is None:
                raise MetadataError(f"there is no topic {record.topic_name} to clear the ELR of")
            yield from self._topic(topic_id).clear_elr()
            return
        old = self._image.topics_by_id
        for number, topic_id in enumerate([*old, *self._created_ids.values()], 1):
            if topic_id in self.changed or any(map(_has_elr, old[topic_id].partitions)):
                topic = self._find(topic_id)
                if topic is not None:
                    yield from topic.clear_elr()
            if not number % ITEMS_A_STEP:
                yield

    def _id_of(self, name: str) -> bytes | None:
        topic_id = self._created_ids.get(name)
        if topic_id is None and name in self._image.topics:
            topic_id = self._image.topics[name].topic_id
        return None if topic_id in self.deleted else topic_id

    def _name_exists(self, name: str) -> bool:
        return self._id_of(name) is not None

    def _topic(self, topic_id: bytes) -> TopicDelta:
        topic = self._find(topic_id)
        if topic is None:
            raise MetadataError(f"no topic has the id {uuid_to_text(topic_id)}")
        return topic

    def _find(self, topic_id: bytes) -> TopicDelta | None:
        topic = self.changed.get(topic_id)
        if topic is None and topic_id not in self.deleted:
            old = self._image.topics_by_id.get(topic_id)
            if old is not None:
                topic = self.changed[topic_id] = TopicDelta(old.name, topic_id, old)
        return topic

    # -- apply ---------------------------------------------------------------------------

    def apply(self) -> Steps[MetadataImage]:
        """Return the image with the topics of this delta."""
        image = self._image
        if not self.changed and not self.deleted:
            return image
        topics, topics_by_id = dict(image.topics), dict(image.topics_by_id)
        for deleted in self.deleted.values():
            del topics[deleted.name], topics_by_id[deleted.topic_id]
        for number, topic in enumerate(self.changed.values(), 1):
            applied = topic.apply()
            topics[applied.name] = topics_by_id[applied.topic_id] = applied
            if not number % ITEMS_A_STEP:
                yield
        return image._replace(
            topics=topics, topics_by_id=topics_by_id, colliding_names=self._colliding_names()
        )

    def _colliding_names(self) -> Mapping[str, frozenset[str]]:
        removed = [topic.name for topic in self.deleted.values() if may_collide(topic.name)]
        added = [name for name in self._created_ids if may_collide(name)]
        if not removed and not added:
            return self._image.colliding_names
        colliding = dict(self._image.colliding_names)
        for name in removed:
            key = collision_key(name)
            rest = colliding.pop(key) - {name}
            if rest:
                colliding[key] = rest
        for name in added:
            key = collision_key(name)
            colliding[key] = colliding.get(key, frozenset()) | {name}
        return colliding


def _changed(old: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return the partition after a change; a new leader begins a new leader epoch."""
    led = record.leader != NO_LEADER_CHANGE
    state = record.leader_recovery_state
    elr = record.eligible_leader_replicas
    return PartitionImage(
        old.partition_id,
        _or_old(record.replicas, old.replicas),
        _or_old(record.isr, old.isr),
        record.leader if led else old.leader,
        old.leader_epoch + led,
        old.partition_epoch + 1,
        _or_old(record.directories, old.directories),
        _or_old(record.removing_replicas, old.removing_replicas),
        _or_old(record.adding_replicas, old.adding_replicas),
        _or_old(elr, old.eligible_leader_replicas),
        _or_old(record.last_known_elr, old.last_known_elr),
        old.leader_recovery_state if state < 0 else state,
    )


def _has_elr(partition: PartitionImage) -> bool:
    return bool(partition.eligible_leader_replicas or partition.last_known_elr)


def _or_old(new: Sequence[T] | None, old: tuple[T, ...]) -> tuple[T, ...]:
    return old if new is None else _shared(tuple(new))


@lru_cache(maxsize=1024)
def _shared(ids: tuple[T, ...]) -> tuple[T, ...]:
    """Return one object for equal tuples: most partitions have the same few lists."""
    return ids
