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
from ottla.broker.replicas.broker_cleaner import BrokerCleaner
from ottla.config.topic import LogConfig, usable_log_config
from ottla.controller import brokers
from ottla.controller.eligible_leaders import begin_cluster, unused_min_insync_replicas
from ottla.controller.metadata_log import METADATA_LOG_CONFIG
from ottla.controller.metadata_snapshots import SnapshotConfig
from ottla.controller.quorum_controller import QuorumController
from ottla.log.damage import LogDirsFailed
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.store.log_store import LogStore, parent_of
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ApiError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.model.steps import Steps, run_to_end
from ottla.raft.voters import ReplicaKey
from ottla.replication.partition import Partition, Topic
from ottla.replication.topics import HostedTopics
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.controller.bootstrap_metadata import BootstrapMetadata

BOOTSTRAP_FILE = "bootstrap.checkpoint"
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
        self.broker_epoch = -1
        """The epoch of this broker's registration; -1 before it."""
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
        self.store.on_offline = self._logs_lost
        self._bootstrap: BootstrapMetadata | None = None
        self._may_lead = node.config.is_alone
        """False until the metadata has the registration of this process.

        An older image may be out of date, and its ISRs too small.
        """
        self._checkpointed_writes = (0, 0)
        """How often partitions had been written to at the last two checks for high watermarks."""
        self._unusable_settings: dict[str, tuple[str, ...]] = {}
        """What was reported about the present settings of topics."""
        self._unmade: dict[TopicPartition, Partition] = {}
        """Partitions of this broker whose log could not be created or opened: the disk was full."""
        self._is_serving = False
        self.cleaning = BrokerCleaner(node)
        self.on_log_made: list[Callable[[Partition], None]] = []
        self.on_first_led: list[Callable[[Partition], None]] = []
        """Told of each partition that this broker leads when its metadata is current at last."""
        self.on_moved_away: list[Callable[[Partition], None]] = []
        self.on_log_moved: list[Callable[[Partition], None]] = []
        self.on_lost: list[Callable[[list[TopicPartition]], None]] = []

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
        self._read_bootstrap()
        if node.config.is_alone:
            self.controller.start()
        else:
            self._join_quorum()
        node.image = self.controller.image
        node.apply_dynamic_config(node.image)
        unused = unused_min_insync_replicas(node.image, node.config)
        if unused is not None:
            node.report(unused)
        self.store.load(lambda partition: self.log_config(partition.topic), self._ours())
        if self._must_end:
            self._report_notes()
            self._end_broker()
        if node.config.is_alone:
            self.set_strays_aside()
        for topic in node.image.topics.values():
            for partition in topic.partitions:
                self._follow_partition(topic.name, topic.topic_id, partition, node.image)
        self.controller.prepare = partial(metadata_publisher.prepare, node)
        self.controller.publish = partial(metadata_publisher.publish, node)
        self.controller.run = node.sliced_work.run
        if node.config.is_alone:
            self.controller.write(self._arrival())
        self._report_notes()
        self._schedule_jobs()
        self.store.resources.index_jobs.is_serving = True
        self._is_serving = True

    def _read_bootstrap(self) -> None:
        """Read what Kafka's tool has left for a new cluster, if this may be one."""
        config, files = self._node.config, self._ports.files
        is_controller = config.is_alone or "controller" in config.node.process_roles
        if not is_controller or self.controller.log.log_end_offset:
            return
        path = f"{self._metadata_dir}/{BOOTSTRAP_FILE}"
        if files.exists(path):
            from ottla.controller.bootstrap_metadata import read_bootstrap

            self._bootstrap = read_bootstrap(files, path, self._ports.report)

    def first_records(self, image: MetadataImage) -> list[Message]:
        """Return what begins a new cluster; nothing for one that has begun."""
        if self._bootstrap is None:
            return begin_cluster(image, self._node.config)
        return self._bootstrap.first_records(image, self._node.config)

    def _join_quorum(self) -> None:
        from ottla.broker.membership.quorum_membership import membership

        local = ReplicaKey(self._node.node_id, self.identity.directory_ids[0])
        self.controller.join(membership(self._node, local))

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
        records = self.first_records(image) + brokers.register_broker(
            broker_id=node.node_id,
            broker_epoch=self.broker_epoch,
            incarnation_id=self._ports.random.uuid(),
            endpoints=list(node.advertised.values()),
            rack=node.config.node.broker_rack,
            log_dirs=self.identity.directory_ids,
        )
        offline = self.store.offline_partitions
        if not all(directory.was_clean for directory in self.store.directories.values()):
            records += brokers.lead_anew(image, node.node_id, offline)
        records += brokers.take_lead(image, node.node_id, offline)
        return records + run_to_end(brokers.give_up_lead(image, node.node_id, offline))

    def shutdown(self) -> None:
        """Close every log and write the clean-shutdown markers."""
        self.store.shutdown(self.broker_epoch)
        self._report_notes()

    # -- metadata to logs ----------------------------------------------------------------

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> Steps[None]:
        """Make the hosted logs what a new image says, a partition with each step."""
        is_first = not self._may_lead and self._is_registered(image)
        self._may_lead |= is_first
        for topic_id in delta.topics.deleted:
            yield from self._remove(topic_id)
        for topic in delta.topics.changed.values():
            if topic.has_new_partitions:
                names = (TopicPartition(topic.name, index) for index in topic.partitions)
                yield from self.store.forget([name for name in names if not self.store.get(name)])
            for partition in topic.partitions.values():
                self._follow_partition(topic.name, topic.topic_id, partition, image)
                yield
        if is_first:
            yield from self._lead_first(image)
        if delta.configs.changed_names(ResourceType.BROKER):
            reconfigured: Iterable[str] = image.topics
        else:
            reconfigured = delta.configs.changed_names(ResourceType.TOPIC)
        for name in reconfigured:
            yield from self._reconfigure(name, image)

    @property
    def is_current(self) -> bool:
        """True once the metadata has the registration of this process, and what came before it."""
        return self._may_lead

    def _is_registered(self, image: MetadataImage) -> bool:
        """Return True if the metadata has the registration of this process."""
        broker, lifecycle = image.brokers.get(self._node.node_id), self._node.lifecycle
        if broker is None or lifecycle is None:
            return False
        return broker.incarnation_id == lifecycle.incarnation_id

    def _lead_first(self, image: MetadataImage) -> Steps[None]:
        """Lead what the metadata says, now that it has the registration of this process."""
        for topic in image.topics.values():
            for partition in topic.partitions:
                if partition.leader == self._node.node_id:
                    self._follow_partition(topic.name, topic.topic_id, partition, image)
                    self._tell_first_led(topic.topic_id, partition.partition_id)
                yield

    def _tell_first_led(self, topic_id: bytes, index: int) -> None:
        topic = self.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is not None and partition.leader is not None:
            for tell in self.on_first_led:
                tell(partition)

    def _take_role(self, partition: Partition, image: PartitionImage) -> None:
        if image.leader == self._node.node_id and not self._may_lead:
            image = image._replace(leader=NO_LEADER)
        partition.take_role(image, self._node.node_id)

    def _follow_partition(
        self, name: str, topic_id: bytes, partition_image: PartitionImage, image: MetadataImage
    ) -> None:
        """Make one partition what its image says: the only place where metadata changes one."""
        topic = self.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(partition_image.partition_id)
        if self._node.node_id in partition_image.replicas:
            if partition is None:
                self._host(name, topic_id, partition_image, image)
            else:
                self._take_role(partition, partition_image)
        elif partition is not None:
            self._move_away(partition, partition_image)

    def _move_away(self, partition: Partition, image: PartitionImage) -> None:
        """Delete the log of a replica that was moved to other brokers."""
        name = TopicPartition(partition.topic.name, partition.index)
        partition.move_away(image)
        self.topics.remove_partition(partition)
        for tell in self.on_moved_away:
            tell(partition)
        self._unmade.pop(name, None)
        self.store.delete(name)
        partition.let_go()

    def log_config(self, topic: str, image: MetadataImage | None = None) -> LogConfig:
        """Return the settings of a topic's logs, as of an image that may not be current yet."""
        image = image or self._node.image
        config, errors = usable_log_config(self._node.config, image.topic_config(topic))
        if not errors:
            self._unusable_settings.pop(topic, None)
        elif self._unusable_settings.get(topic) != errors:
            self._unusable_settings[topic] = errors
            self._ports.report(f"{topic} has settings that cannot be used: {'; '.join(errors)}")
        return config

    def _reconfigure(self, name: str, image: MetadataImage) -> Steps[None]:
        """Apply the current settings of a topic to its logs."""
        topic = self.topics.named(name)
        if topic is None:
            return
        config = self.log_config(name, image)
        for partition in list(topic.partitions.values()):
            if partition.log is not None:
                partition.log.reconfigure(config)
                if partition.leader is not None:
                    partition.leader.settings_changed()
                if self._node.tier is not None:
                    self._node.tier.config_changed(partition.log)
            yield
        if config.compacts:
            self.cleaning.check_soon()

    def _host(
        self, topic_name: str, topic_id: bytes, image: PartitionImage, cluster: MetadataImage
    ) -> None:
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
            partition.log = self._log(name, topic_id, self.log_config(topic_name, cluster))
            if partition.log is None:
                self._unmade[name] = partition
        self._take_role(partition, image)

    def _make_missing_logs(self) -> None:
        """Create or open the logs for which there was no room, until one fails again.

        A partition whose directory went offline meanwhile has records there: it gets no new log.
        """
        for name, partition in list(self._unmade.items()):
            if not partition.removed and name not in self.store.offline_partitions:
                image = self._node.image.topics_by_id.get(partition.topic.topic_id)
                if image is None or len(image.partitions) <= partition.index:
                    continue  # its topic is being created
                config = self.log_config(name.topic)
                partition.log = self._log(name, partition.topic.topic_id, config)
                if partition.log is None:
                    return
                self._ports.report(f"{name} has its log now")
                self._take_role(partition, image.partitions[partition.index])
                for tell in self.on_log_made:
                    tell(partition)
            del self._unmade[name]

    def _log(self, name: TopicPartition, topic_id: bytes, config: LogConfig) -> Log | None:
        log = self.store.get(name)
        if log is not None and log.topic_id not in (ZERO_UUID, topic_id):
            self.store.set_aside(name)  # the topic was deleted and created again meanwhile
            log = None
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

    def _remove(self, topic_id: bytes) -> Steps[None]:
        topic = self.topics.remove(topic_id)
        if topic is not None:
            self._unusable_settings.pop(topic.name, None)
            for index, partition in topic.partitions.items():
                partition.remove()
                log = self.store.get(TopicPartition(topic.name, index))
                if log is not None:
                    yield from log.forget_indexes()
                self.store.delete(TopicPartition(topic.name, index))
                yield
            yield from self._free(topic)

    def _free(self, topic: Topic) -> Steps[None]:
        """Free the memory of a deleted topic, whose parts refer to one another, in steps."""
        self._node.write_appended()
        while topic.partitions:
            topic.partitions.popitem()[1].let_go()
            yield

    def set_strays_aside(self) -> None:
        """Rename the directories of logs that the metadata does not have on this broker.

        A broker of a cluster does so when it has caught up with the metadata.
        """
        for log in list(self.store):
            if not self._belongs(log):
                self.store.set_aside(log.topic_partition)

    def _belongs(self, log: Log) -> bool:
        """Return True if a log on disk is the replica of a partition that the metadata has here.

        A log without a topic id may be of an old Kafka. After a crash it may also be of a
        deleted topic of the same name, whose files came back with the power failure. Ottla's
        own logs have the id as soon as any of their records is forced to disk. So a log that
        was forced to disk and has no id is an old Kafka's. The others hold nothing that counts.
        """
        topic = self._node.image.topics.get(log.topic_partition.topic)
        if topic is None or log.topic_partition.partition >= len(topic.partitions):
            return False
        if self._node.node_id not in topic.partitions[log.topic_partition.partition].replicas:
            return False
        if log.topic_id == ZERO_UUID:
            return self.store.directories[parent_of(log)].was_clean or log.recovery_point > 0
        return log.topic_id == topic.topic_id

    # -- log directories -----------------------------------------------------------------

    @property
    def previous_epoch(self) -> int:
        """The epoch with which this broker was shut down cleanly; -1 if it was not."""
        epochs = {directory.clean_epoch for directory in self.store.directories.values()}
        return epochs.pop() if len(epochs) == 1 else -1

    def directory_id(self, path: str) -> bytes:
        """Return the id of a log directory."""
        return self.identity.directory_ids[self._node.config.storage.log_dirs.index(path)]

    @property
    def online_directory_ids(self) -> list[bytes]:
        """The ids of the log directories that can be used."""
        return [self.directory_id(path) for path in self.store.directories]

    @property
    def failed_directory_ids(self) -> list[bytes]:
        """The ids of the log directories that have failed."""
        return [self.directory_id(path) for path in self.store.offline_dirs]

    # -- storage errors ------------------------------------------------------------------

    def storage_failed(self, partition: Partition, problem: OSError) -> None:
        """Handle a storage error of a log; its directory may go offline."""
        if partition.log is not None:
            self.store.handle_error(partition.log, problem)
        self._report_notes()

    def log_failed(self, log: Log, problem: OSError) -> None:
        """Handle a storage error of work on a log in the background."""
        self.store.handle_error(log, problem)
        self._report_notes()

    def _logs_lost(self, path: str, error: OSError, lost: list[TopicPartition]) -> None:
        """Take partitions offline whose directory, or whose log, is lost.

        A broker that is a cluster of its own has no other replica: nobody leads them until the
        next start. In a cluster the controller lets other replicas lead.

        If no directory is left, or the one with the metadata is lost, the broker ends after this
        wake-up, so that clients and the controller look for other replicas.
        """
        for name in lost:
            topic = self.topics.named(name.topic)
            partition = None if topic is None else topic.partitions.get(name.partition)
            if partition is not None:
                partition.log = None
                partition.notify()
        if self._must_end:
            self._after(0, self._end_broker)
        elif self._node.lifecycle is not None:
            self._node.lifecycle.directories_failed()
            for tell in self.on_lost:
                tell(lost)
        elif self._is_serving and self._node.config.is_alone:
            self.controller.decide(
                lambda image: brokers.give_up_lead(image, self._node.node_id, lost),
                lambda failure: None,
            )

    @property
    def _must_end(self) -> bool:
        """Whether so much is lost that the broker cannot go on."""
        return self._metadata_dir not in self.store.directories

    @property
    def _metadata_dir(self) -> str:
        return self._node.config.storage.log_dirs[0]

    def _end_broker(self) -> None:
        if self.store.directories:
            lost = f"the metadata log dir {self._metadata_dir} has failed"
        else:
            lost = f"all log dirs in {', '.join(self._node.config.storage.log_dirs)} have failed"
        raise LogDirsFailed(f"Shutdown broker because {lost}")

    def _report_notes(self) -> None:
        for note in self.store.notes:
            self._ports.report(note)
        self.store.notes.clear()

    # -- periodic work -------------------------------------------------------------------

    def _schedule_jobs(self) -> None:
        config, store = self._node.config, self.store
        first_ms = config.storage.log_initial_task_delay_ms
        self._after(first_ms, self._begin_retention)
        self.cleaning.start()
        self._every(config.storage.log_flush_scheduler_interval_ms, first_ms, self._flush)
        self._every(
            min(
                config.storage.log_flush_offset_checkpoint_interval_ms,
                config.storage.log_flush_start_offset_checkpoint_interval_ms,
            ),
            first_ms,
            lambda now_ms: self._run(store.write_checkpoints()),
        )
        self._every(
            config.storage.replica_high_watermark_checkpoint_interval_ms,
            first_ms,
            self._write_high_watermarks,
        )
        self._every(IDLE_INTERVAL_MS, IDLE_INTERVAL_MS, self._release_memory)
        self._every(RETRY_INTERVAL_MS, RETRY_INTERVAL_MS, lambda now_ms: self._make_missing_logs())
        self._every(TRASH_INTERVAL_MS, TRASH_INTERVAL_MS, store.delete_pending_files)
        self._every(
            SNAPSHOT_CHECK_MS,
            SNAPSHOT_CHECK_MS,
            lambda now_ms: self.controller.maintain_snapshots(),
        )
        expiry_ms = config.producer_ids.producer_id_expiration_check_interval_ms
        self._after(expiry_ms, self._begin_expiry)

    def _write_high_watermarks(self, now_ms: int) -> None:
        """Write the checkpoints if partitions were written to since the last two calls.

        A high watermark moves after a write, so this costs nothing if all partitions are idle.
        """
        writes, before = self._node.writes, self._checkpointed_writes
        if before[0] != writes:
            self._checkpointed_writes = before[1], writes
            self._run(self.store.write_checkpoints())

    def _flush(self, now_ms: int) -> None:
        self._run(self.store.run_flush(now_ms))

    def _release_memory(self, now_ms: int) -> None:
        self._run(self.store.release_idle_memory())

    def _run(self, steps: Steps[None]) -> None:
        """Do something with all logs, a little at a time."""
        self._node.sliced_work.run(steps)

    def _begin_retention(self) -> None:
        self._take_steps(
            self.store.run_retention(self._node.wall_ms),
            self._node.config.storage.log_retention_check_interval_ms,
            self._begin_retention,
        )

    def _begin_expiry(self) -> None:
        self._take_steps(
            self.store.expire_producers(self._node.wall_ms),
            self._node.config.producer_ids.producer_id_expiration_check_interval_ms,
            self._begin_expiry,
        )

    def _take_steps(
        self, steps: Iterator[int], interval_ms: int, next_round: Callable[[], None]
    ) -> None:
        """Do one step of a periodic job, and schedule the next step or the next round."""
        if next(steps, None) is not None:
            self._after(PAUSE_MS, partial(self._take_steps, steps, interval_ms, next_round))
        else:
            self._after(interval_ms, next_round)
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
