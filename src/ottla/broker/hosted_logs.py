"""The logs that this broker hosts, as the metadata says.

At start the controller builds the image, and every partition with a replica here gets its log.
From then on only committed metadata creates, deletes or reconfigures logs. Periodic work on
the logs runs from here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker import metadata_publisher
from ottla.broker.identity import establish
from ottla.config.topic import LogConfig, log_config
from ottla.controller import brokers
from ottla.controller.metadata_log import METADATA_LOG_CONFIG
from ottla.controller.metadata_snapshots import SnapshotConfig
from ottla.controller.quorum_controller import QuorumController
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.store.log_store import LogStore, parent_of
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.model.errors import ApiError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.resources import ResourceType
from ottla.raft.voters import ReplicaKey
from ottla.replication.partition import Partition, Topic
from ottla.replication.topics import HostedTopics
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node

RETRY_INTERVAL_MS = 1000
TRASH_INTERVAL_MS = 1000
IDLE_INTERVAL_MS = 60_000
SNAPSHOT_CHECK_MS = 10_000
NEVER_MS = 2**62
PAUSE_MS = 0.1


class HostedLogs:
    """The logs, topics and metadata of one broker."""

    def __init__(self, node: Node, max_open_files: int) -> None:
        ports = node.ports
        self._node = node
        self._ports = ports
        self.topics = HostedTopics(node.image)
        self.store = LogStore(
            ports.files,
            node.config.storage.log_dirs,
            background=ports.background,
            clock=ports.clock,
            random=ports.random,
            pool=FilePool(ports.files, max_open_files),
            producer_expiration_ms=node.config.producer_ids.producer_id_expiration_ms,
        )
        self.store.on_offline = self._directory_lost
        self._unmade: dict[TopicPartition, Partition] = {}
        """Partitions of this broker whose log could not be created or opened: the disk was full."""
        self.on_log_made: list[Callable[[Partition], None]] = []

    # -- start and end -------------------------------------------------------------------

    def start(self) -> None:
        """Load the logs, replay the metadata, register, host what is ours."""
        node = self._node
        self.identity = establish(
            self._ports.files,
            self._ports.random,
            node.config.storage.log_dirs,
            node.node_id,
            node.config.node.cluster_id,
        )
        metadata = node.config.metadata_log
        self.controller = QuorumController(
            self.store.open_metadata_log(
                METADATA_LOG_CONFIG.replace(
                    segment_bytes=metadata.metadata_log_segment_bytes,
                    segment_ms=metadata.metadata_log_segment_ms,
                )
            ),
            MetadataImage(self.identity.cluster_id),
            ReplicaKey(node.node_id, self.identity.directory_ids[0]),
            self._at_wake_up_end,
            SnapshotConfig(
                metadata.metadata_log_max_record_bytes_between_snapshots,
                metadata.metadata_log_max_snapshot_interval_ms,
                metadata.metadata_max_retention_bytes,
                metadata.metadata_max_retention_ms,
            ),
        )
        self.controller.start()
        node.image = self.controller.image
        node.apply_dynamic_config()
        self.store.load(lambda partition: self.log_config(partition.topic), self._ours())
        self._set_strays_aside()
        for topic in node.image.topics.values():
            for partition in topic.partitions:
                self._follow_partition(topic.name, topic.topic_id, partition)
        self.controller.publish = partial(metadata_publisher.publish, node)
        self.controller.write(self._arrival())
        self._report_notes()
        self._schedule_jobs()

    def _at_wake_up_end(self, action: Callable[[], None]) -> None:
        self._node.before_write.append(action)

    def _ours(self) -> dict[TopicPartition, bytes]:
        """Return the partitions that have a replica here, with their topic ids."""
        return {
            TopicPartition(topic.name, partition.partition_id): topic.topic_id
            for topic in self._node.image.topics.values()
            for partition in topic.partitions
            if self._node.node_id in partition.replicas
        }

    def _arrival(self) -> list[Message]:
        """Return the records that register this broker; after a crash with new leader epochs."""
        node, image = self._node, self._node.image
        self.broker_epoch = self.controller.log.log_end_offset
        records = brokers.begin_cluster(image) + brokers.register_broker(
            broker_id=node.node_id,
            broker_epoch=self.broker_epoch,
            incarnation_id=self._ports.random.uuid(),
            endpoints=list(node.advertised.values()),
            rack=node.config.node.broker_rack,
            log_dirs=self.identity.directory_ids,
        )
        if not all(directory.was_clean for directory in self.store.directories.values()):
            records += brokers.lead_anew(image, node.node_id)
        return records + brokers.take_lead(image, node.node_id)

    def shutdown(self) -> None:
        """Close every log and write the clean-shutdown markers."""
        self.store.shutdown(self.broker_epoch)
        self._report_notes()

    # -- metadata to logs ----------------------------------------------------------------

    def follow(self, delta: MetadataDelta) -> None:
        """Make the hosted logs what the node's image says."""
        for topic_id in delta.topics.deleted:
            self._remove(topic_id)
        for topic in delta.topics.changed.values():
            for partition in topic.partitions.values():
                self._follow_partition(topic.name, topic.topic_id, partition)
        if delta.configs.changed_names(ResourceType.BROKER):
            reconfigured: Iterable[str] = self._node.image.topics
        else:
            reconfigured = delta.configs.changed_names(ResourceType.TOPIC)
        for name in reconfigured:
            self._reconfigure(name)

    def _follow_partition(self, name: str, topic_id: bytes, image: PartitionImage) -> None:
        """Make one partition what its image says: the only place where metadata changes one."""
        topic = self.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(image.partition_id)
        if partition is not None:
            partition.take_role(image, self._node.node_id)
        elif self._node.node_id in image.replicas:
            self._host(name, topic_id, image)

    def log_config(self, topic: str) -> LogConfig:
        """Return the current settings of a topic's logs."""
        return log_config(self._node.config, self._node.image.topic_config(topic))

    def _reconfigure(self, name: str) -> None:
        """Apply the current settings of a topic to its logs."""
        topic = self.topics.named(name)
        if topic is None:
            return
        config = self.log_config(name)
        for partition in topic.partitions.values():
            if partition.log is not None:
                partition.log.reconfigure(config)

    def _host(self, topic_name: str, topic_id: bytes, image: PartitionImage) -> None:
        """Open or create the log of a partition that is ours."""
        topic = self.topics.by_id.get(topic_id)
        if topic is None:
            topic = Topic(topic_name, topic_id)
            self.topics.add(topic)
        index = image.partition_id
        partition = Partition(topic, index)
        topic.partitions[index] = partition
        name = TopicPartition(topic_name, index)
        if name not in self.store.offline_partitions:
            partition.log = self._log(name, topic_id)
            if partition.log is None:
                self._unmade[name] = partition
        partition.take_role(image, self._node.node_id)

    def _make_missing_logs(self) -> None:
        """Create or open the logs for which there was no room, until one fails again.

        A partition whose directory went offline meanwhile has records there: it gets no new log.
        """
        for name, partition in list(self._unmade.items()):
            if not partition.removed and name not in self.store.offline_partitions:
                partition.log = self._log(name, partition.topic.topic_id)
                if partition.log is None:
                    return
                self._ports.report(f"{name} has its log now")
                image = self._node.image.topics_by_id[partition.topic.topic_id]
                partition.take_role(image.partitions[partition.index], self._node.node_id)
                for tell in self.on_log_made:
                    tell(partition)
            del self._unmade[name]

    def _log(self, name: TopicPartition, topic_id: bytes) -> Log | None:
        log = self.store.get(name)
        config = self.log_config(name.topic)
        try:
            if log is None:
                log = self._open_late(name, config)
            if log is None:
                log = self.store.create(name, topic_id, config)
            else:
                log.reconfigure(config)
                self._adopt(log, topic_id)
        except (ApiError, OSError) as error:
            if name not in self._unmade:
                self._ports.report(f"no log could be made for {name} yet: {error}")
            return None
        return log

    def _open_late(self, name: TopicPartition, config: LogConfig) -> Log | None:
        """Open a log for which there was no room at start; None if there is no such log."""
        while (log := self.store.open_late(name, config)) is not None:
            if self._belongs(log):
                return log
            self.store.set_aside(name)
        return None

    def _adopt(self, log: Log, topic_id: bytes) -> None:
        try:
            log.adopt_topic_id(topic_id)
        except OSError as error:
            self.store.handle_error(log, error)
            raise

    def _remove(self, topic_id: bytes) -> None:
        topic = self.topics.remove(topic_id)
        if topic is not None:
            for index in topic.partitions:
                self.store.delete(TopicPartition(topic.name, index))

    def _set_strays_aside(self) -> None:
        """Rename the directories of logs whose topics are not in the metadata."""
        for log in list(self.store):
            if not self._belongs(log):
                self.store.set_aside(log.topic_partition)

    def _belongs(self, log: Log) -> bool:
        """Return True if a log on disk belongs to a topic of the metadata.

        A log without a topic id may be of an old Kafka. After a crash it may also be of a
        deleted topic of the same name, whose files came back with the power failure. Ottla's
        own logs have the id as soon as any of their records is forced to disk. So a log that
        was forced to disk and has no id is an old Kafka's. The others hold nothing that counts.
        """
        topic = self._node.image.topics.get(log.topic_partition.topic)
        if topic is None or log.topic_partition.partition >= len(topic.partitions):
            return False
        if log.topic_id == ZERO_UUID:
            return self.store.directories[parent_of(log)].was_clean or log.recovery_point > 0
        return log.topic_id == topic.topic_id

    # -- storage errors ------------------------------------------------------------------

    def storage_failed(self, partition: Partition, problem: OSError) -> None:
        """Handle a storage error of a log; its directory may go offline."""
        if partition.log is not None:
            self.store.handle_error(partition.log, problem)
        self._report_notes()

    def _directory_lost(self, path: str, error: OSError, lost: list[TopicPartition]) -> None:
        for name in lost:
            topic = self.topics.named(name.topic)
            partition = None if topic is None else topic.partitions.get(name.partition)
            if partition is not None:
                partition.log = None
                partition.notify()

    def _report_notes(self) -> None:
        for note in self.store.notes:
            self._ports.report(note)
        self.store.notes.clear()

    # -- periodic work -------------------------------------------------------------------

    def _schedule_jobs(self) -> None:
        config, store = self._node.config, self.store
        first_ms = config.storage.log_initial_task_delay_ms
        self._after(first_ms, self._begin_retention)
        self._every(config.storage.log_flush_scheduler_interval_ms, first_ms, store.run_flush)
        self._every(
            min(
                config.storage.log_flush_offset_checkpoint_interval_ms,
                config.storage.log_flush_start_offset_checkpoint_interval_ms,
                config.storage.replica_high_watermark_checkpoint_interval_ms,
            ),
            first_ms,
            lambda now_ms: store.write_checkpoints(),
        )
        self._every(IDLE_INTERVAL_MS, IDLE_INTERVAL_MS, lambda now_ms: store.release_idle_memory())
        self._every(RETRY_INTERVAL_MS, RETRY_INTERVAL_MS, lambda now_ms: self._make_missing_logs())
        self._every(TRASH_INTERVAL_MS, TRASH_INTERVAL_MS, store.delete_pending_files)
        self._every(
            SNAPSHOT_CHECK_MS,
            SNAPSHOT_CHECK_MS,
            lambda now_ms: self.controller.maintain_snapshots(),
        )
        expiry_ms = config.producer_ids.producer_id_expiration_check_interval_ms
        self._every(expiry_ms, expiry_ms, store.expire_producers)

    def _begin_retention(self) -> None:
        self._continue_retention(self.store.run_retention(self._node.wall_ms))

    def _continue_retention(self, steps: Iterator[int]) -> None:
        """Do one step of a retention round, and schedule the next step or the next round."""
        if next(steps, None) is not None:
            self._after(PAUSE_MS, partial(self._continue_retention, steps))
        else:
            self._after(
                self._node.config.storage.log_retention_check_interval_ms, self._begin_retention
            )
        self._report_notes()

    def _every(self, interval_ms: int, first_ms: int, job: Callable[[int], object]) -> None:
        """Run a job every `interval_ms`."""
        if interval_ms >= NEVER_MS:
            return

        def run() -> None:
            job(self._node.wall_ms)
            self._report_notes()
            self._after(interval_ms, run)

        self._after(first_ms, run)

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._node.timers.at(self._node.monotonic_ms + delay_ms, action)
