"""Tells the controller in which log directory this broker has its replicas (KIP-858).

The controller knows it if the broker has only one directory. Else the broker says so when it has
created a log, and when a log has moved. It also says so when a single log has failed: then the
controller lets another replica lead. What differs from the metadata is sent; the metadata tells
when it has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.controller.brokers import DIRECTORIES_LEVEL, METADATA_VERSION
from ottla.log.store.log_store import parent_of
from ottla.metadata.image import PartitionImage
from ottla.model.ids import LOST_DIRECTORY, TopicPartition
from ottla.model.steps import Steps
from ottla.replication.partition import Partition
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.metadata.delta import MetadataDelta

MOST_REPLICAS: Final = 2000
"""How many replicas one request names."""
CHECKED_A_STEP: Final = 500
RETRY_MS: Final = 500
TIMEOUT_MS: Final = 10_000


class DirectoryAssignments:
    """The replicas whose directory the controller does not know yet."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._queued: dict[Partition, None] = {}
        self._is_in_flight = False
        node.hosted_logs.on_log_made.append(self._check)
        node.hosted_logs.on_log_moved.append(self._check)
        node.hosted_logs.on_lost.append(self._lost)

    def follow(self, delta: MetadataDelta) -> None:
        """Look at the partitions that have changed."""
        topics = self._node.topics.by_id
        for topic_id, changed in delta.topics.changed.items():
            topic = topics.get(topic_id)
            if topic is not None:
                for index in changed.partitions:
                    partition = topic.partitions.get(index)
                    if partition is not None:
                        self._check(partition)

    def check_all(self) -> None:
        """Look at all replicas of this broker."""
        self._node.sliced_work.run(self._check_in_steps())

    def _check_in_steps(self) -> Steps[None]:
        for number, partition in enumerate(list(self._node.topics), 1):
            self._check(partition)
            if not number % CHECKED_A_STEP:
                yield

    def _lost(self, partitions: Iterable[TopicPartition]) -> None:
        for name in partitions:
            topic = self._node.topics.named(name.topic)
            partition = None if topic is None else topic.partitions.get(name.partition)
            if partition is not None:
                self._check(partition)

    def _check(self, partition: Partition) -> None:
        """Queue a replica if the metadata says something else about it."""
        if self._wanted(partition) is not None:
            self._queued[partition] = None
            self._send_soon()

    def _wanted(self, partition: Partition) -> bytes | None:
        """Return the directory of a replica, None if the metadata has it or does not care."""
        image = self._image_of(partition)
        if image is None or len(image.directories) != len(image.replicas):
            return None
        known = image.directories[image.replicas.index(self._node.node_id)]
        wanted = self._directory_of(partition, known)
        return None if wanted == known else wanted

    def _image_of(self, partition: Partition) -> PartitionImage | None:
        node = self._node
        topic = node.image.topics_by_id.get(partition.topic.topic_id)
        if partition.removed or topic is None or partition.index >= len(topic.partitions):
            return None
        image = topic.partitions[partition.index]
        return image if node.node_id in image.replicas else None

    def _directory_of(self, partition: Partition, known: bytes) -> bytes:
        hosted = self._node.hosted_logs
        if partition.log is not None:
            return hosted.directory_id(parent_of(partition.log))
        name = TopicPartition(partition.topic.name, partition.index)
        has_failed = name in self._node.store.offline_partitions
        if has_failed and known not in hosted.failed_directory_ids:
            return LOST_DIRECTORY
        return known  # the log is not there yet, or it is known that its directory has failed

    # -- requests ------------------------------------------------------------------------

    def _send_soon(self) -> None:
        if not self._is_in_flight:
            self._is_in_flight = True
            self._node.before_write.append(self._send)

    def _send(self) -> None:
        node = self._node
        lifecycle = node.lifecycle
        assert lifecycle is not None
        level = node.image.features.get(METADATA_VERSION, 0)
        if not self._queued or level < DIRECTORIES_LEVEL:
            self._is_in_flight = False
            return
        if lifecycle.epoch < 0:
            self._after_failure()
            return
        found: dict[bytes, dict[bytes, list[int]]] = {}
        for partition in list(self._queued)[:MOST_REPLICAS]:
            del self._queued[partition]
            directory = self._wanted(partition)
            if directory is not None:
                topics = found.setdefault(directory, {})
                topics.setdefault(partition.topic.topic_id, []).append(partition.index)
        if not found:
            self._is_in_flight = False
            return
        request = AssignReplicasToDirsRequest(
            broker_id=node.node_id,
            broker_epoch=lifecycle.epoch,
            directories=[_directory(each, topics) for each, topics in found.items()],
        )
        node.channel.send(request, 0, AssignReplicasToDirsResponse, self._answered, TIMEOUT_MS)

    def _answered(self, result: AssignReplicasToDirsResponse | TimeoutError) -> None:
        self._is_in_flight = False
        if isinstance(result, TimeoutError) or result.error_code:
            self._is_in_flight = True
            self._after_failure()
        elif self._queued:
            self._send_soon()

    def _after_failure(self) -> None:
        """Look at everything again after a while."""
        now_ms = self._node.clock.monotonic_ms()
        self._node.timers.at(now_ms + RETRY_MS, self._start_over)

    def _start_over(self) -> None:
        self._is_in_flight = False
        self.check_all()


def _directory(directory: bytes, topics: dict[bytes, list[int]]) -> RequestDirectoryData:
    return RequestDirectoryData(
        id_=directory,
        topics=[
            RequestTopicData(
                topic_id=topic_id,
                partitions=[RequestPartitionData(partition_index=index) for index in indexes],
            )
            for topic_id, indexes in topics.items()
        ],
    )
