"""What this broker hosts, kept in step with the metadata log.

At start the metadata log is replayed into the image and every partition that is ours gets
its log; from then on committed metadata records are the only thing that creates, deletes
or reconfigures logs. Periodic work on the logs runs from here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.identity import establish
from ottla.config.topic import LogConfig, log_config
from ottla.controller import brokers
from ottla.controller.quorum import METADATA_LOG_CONFIG, QuorumController
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.store.log_store import LogStore, parent_of
from ottla.log.store.partition_metadata import adopt
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from ottla.model.errors import ApiError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.resources import ResourceType
from ottla.replication.partition import Partition, Topic
from ottla.replication.topics import HostedTopics
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node

RETRY_INTERVAL_MS = 1000
TRASH_INTERVAL_MS = 1000
IDLE_INTERVAL_MS = 60_000
NEVER_MS = 2**62
PAUSE_MS = 0.1


class Hosting:
    """The logs, topics and metadata of one broker."""

    def __init__(self, node: Node, max_open_files: int) -> None:
        ports = node.ports
        self._node = node
        self._ports = ports
        self.image = MetadataImage()
        self.topics = HostedTopics(self.image)
        self.store = LogStore(
            ports.files,
            node.config.log_dirs,
            background=ports.background,
            clock=ports.clock,
            random=ports.random,
            pool=FilePool(ports.files, max_open_files),
            producer_expiration_ms=node.config.producer_id_expiration_ms,
        )
        self.store.on_offline = self._directory_lost
        self._unmade: dict[TopicPartition, Partition] = {}
        """Partitions that are ours and have no log that can be used, because the disk was full."""
        self.on_log_made: list[Callable[[Partition], None]] = []

    # -- start and end -------------------------------------------------------------------

    def start(self) -> None:
        """Load the logs, replay the metadata, register, host what is ours."""
        node = self._node
        self.identity = establish(
            self._ports.files,
            self._ports.random,
            node.config.log_dirs,
            node.node_id,
            node.config.cluster_id,
        )
        self.image.cluster_id = self.identity.cluster_id
        metadata_log = self.store.open_metadata_log(METADATA_LOG_CONFIG)
        self.controller = QuorumController(metadata_log, self.image, self._ports.clock)
        self.controller.replay()
        node.apply_dynamic_config()
        self.store.load(lambda partition: self.log_config(partition.topic), self._ours())
        self._set_strays_aside()
        for topic in self.image.topics.values():
            self._host_topic(topic)
        self.controller.listeners.append(self._metadata_changed)
        self.controller.write(self._arrival())
        self._report_notes()
        self._schedule_jobs()

    def _ours(self) -> dict[TopicPartition, bytes]:
        """The partitions that have a replica here, with their topic ids."""
        return {
            TopicPartition(topic.name, partition.partition_id): topic.topic_id
            for topic in self.image.topics.values()
            for partition in topic.partitions
            if self._node.node_id in partition.replicas
        }

    def _arrival(self) -> list[Message]:
        """The records that say this broker is up; after a crash it leads in new epochs."""
        node, image = self._node, self.image
        self.broker_epoch = self.controller.log.log_end_offset
        records = brokers.begin_cluster(image) + brokers.register_broker(
            broker_id=node.node_id,
            broker_epoch=self.broker_epoch,
            incarnation_id=self._ports.random.uuid(),
            endpoints=list(node.advertised.values()),
            rack=node.config.broker_rack,
            log_dirs=self.identity.directory_ids,
        )
        if not all(directory.was_clean for directory in self.store.directories.values()):
            records += brokers.lead_anew(image, node.node_id)
        return records + brokers.take_lead(image, node.node_id)

    def shutdown(self) -> None:
        """Close every log and mark the directories as cleanly left."""
        self.store.shutdown(self.broker_epoch)
        self._report_notes()

    # -- metadata to logs ----------------------------------------------------------------

    def _metadata_changed(self, records: Sequence[Message]) -> None:
        """Listener of the controller: make the hosted logs what the image says."""
        self._node.metadata_cache.clear()
        reconfigured: set[str] = set()
        for record in records:
            if isinstance(record, PartitionRecord):
                self._host(record.topic_id, record.partition_id)
            elif isinstance(record, PartitionChangeRecord):
                self._changed(record.topic_id, record.partition_id)
            elif isinstance(record, RemoveTopicRecord):
                self._remove(record.topic_id)
            elif isinstance(record, ConfigRecord):
                if record.resource_type == ResourceType.TOPIC:
                    reconfigured.add(record.resource_name)
                elif record.resource_type == ResourceType.BROKER:
                    self._node.apply_dynamic_config()
                    reconfigured.update(self.image.topics)
        for name in reconfigured:
            self.reconfigure(name)

    def log_config(self, topic: str) -> LogConfig:
        """The settings of a topic's logs as they are now."""
        return log_config(self._node.config, self.image.topic_config(topic))

    def reconfigure(self, name: str) -> None:
        """Let the logs of a topic follow its settings."""
        topic = self.topics.named(name)
        if topic is None:
            return
        config = self.log_config(name)
        for partition in topic.partitions.values():
            if partition.log is not None:
                partition.log.reconfigure(config)

    def _host_topic(self, topic: TopicImage) -> None:
        for partition in topic.partitions:
            self._host(topic.topic_id, partition.partition_id)

    def _host(self, topic_id: bytes, index: int) -> None:
        """Open or create the log of a partition that is ours."""
        image = self.image.topics_by_id.get(topic_id)
        if image is None or self._node.node_id not in image.partitions[index].replicas:
            return
        topic = self.topics.by_id.get(topic_id)
        if topic is None:
            topic = Topic(image.name, topic_id)
            self.topics.add(topic)
        name = TopicPartition(image.name, index)
        partition = Partition(topic, index)
        topic.partitions[index] = partition
        if name not in self.store.offline_partitions:
            partition.log = self._log(name, topic_id)
            if partition.log is None:
                self._unmade[name] = partition
        self._take_role(partition)

    def _make_missing_logs(self) -> None:
        """Try again what failed on a full disk, until the first that still does.

        One that was lost with its directory meanwhile has records there: it is not made anew.
        """
        for name, partition in list(self._unmade.items()):
            if not partition.removed and name not in self.store.offline_partitions:
                partition.log = self._log(name, partition.topic.topic_id)
                if partition.log is None:
                    return
                self._ports.report(f"{name} has its log now")
                self._take_role(partition)
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
        """The log of a partition that there was no room to open when the broker started."""
        while (log := self.store.open_late(name, config)) is not None:
            if self._belongs(log):
                return log
            self.store.set_aside(name)
        return None

    def _adopt(self, log: Log, topic_id: bytes) -> None:
        try:
            adopt(log, topic_id)
        except OSError as error:
            self.store.handle_error(log, error)
            raise

    def _take_role(self, partition: Partition) -> None:
        """Let a partition lead or follow as the image says."""
        image = self.image.topics_by_id[partition.topic.topic_id].partitions[partition.index]
        partition.take_role(image, self._node.node_id)

    def _changed(self, topic_id: bytes, index: int) -> None:
        topic = self.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is not None:
            self._take_role(partition)

    def _remove(self, topic_id: bytes) -> None:
        topic = self.topics.remove(topic_id)
        if topic is not None:
            for index in topic.partitions:
                self.store.delete(TopicPartition(topic.name, index))

    def _set_strays_aside(self) -> None:
        """Logs of topics that are not in the metadata: nobody's, so out of the way."""
        for log in list(self.store):
            if not self._belongs(log):
                self.store.set_aside(log.topic_partition)

    def _belongs(self, log: Log) -> bool:
        """Whether a log that was found is that of a topic there is.

        A log that does not say whose it is may come from an old Kafka. After a crash it may as
        well be that of a deleted topic of the same name, come back when the power failed. Our
        own says whose it is as soon as any of it was forced to disk, so one that was forced
        and says nothing is an old Kafka's; without the others nothing is lost.
        """
        topic = self.image.topics.get(log.topic_partition.topic)
        if topic is None or log.topic_partition.partition >= len(topic.partitions):
            return False
        if log.topic_id == ZERO_UUID:
            return self.store.directories[parent_of(log)].was_clean or log.recovery_point > 0
        return log.topic_id == topic.topic_id

    # -- storage errors ------------------------------------------------------------------

    def storage_failed(self, partition: Partition, problem: OSError) -> None:
        """A log of ours failed: its directory may be lost with it."""
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
        first_ms = config.log_initial_task_delay_ms
        self._after(first_ms, self._begin_retention)
        self._every(config.log_flush_scheduler_interval_ms, first_ms, store.run_flush)
        self._every(
            min(
                config.log_flush_offset_checkpoint_interval_ms,
                config.log_flush_start_offset_checkpoint_interval_ms,
                config.replica_high_watermark_checkpoint_interval_ms,
            ),
            first_ms,
            lambda now_ms: store.write_checkpoints(),
        )
        self._every(IDLE_INTERVAL_MS, IDLE_INTERVAL_MS, lambda now_ms: store.release_idle_memory())
        self._every(RETRY_INTERVAL_MS, RETRY_INTERVAL_MS, lambda now_ms: self._make_missing_logs())
        self._every(TRASH_INTERVAL_MS, TRASH_INTERVAL_MS, store.delete_pending_files)
        expiry_ms = config.producer_id_expiration_check_interval_ms
        self._every(expiry_ms, expiry_ms, store.expire_producers)

    def _begin_retention(self) -> None:
        self._continue_retention(self.store.run_retention(self._node.wall_ms))

    def _continue_retention(self, steps: Iterator[int]) -> None:
        """One step of a round; the next when other work was done, or another round later."""
        if next(steps, None) is not None:
            self._after(PAUSE_MS, partial(self._continue_retention, steps))
        else:
            self._after(self._node.config.log_retention_check_interval_ms, self._begin_retention)
        self._report_notes()

    def _every(self, interval_ms: int, first_ms: int, job: Callable[[int], object]) -> None:
        """Run a job again and again, `interval_ms` apart."""
        if interval_ms >= NEVER_MS:
            return

        def run() -> None:
            job(self._node.wall_ms)
            self._report_notes()
            self._after(interval_ms, run)

        self._after(first_ms, run)

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._node.timers.at(self._node.monotonic_ms + delay_ms, action)
