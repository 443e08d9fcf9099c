"""The remote tier of a broker: its tiered partitions, and what they share.

Every remote.log.manager.task.interval.ms, and whenever the metadata says something new, each tiered
partition looks for something to do. Tasks that use the object store run a few at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.remote_tier.metadata_log import RemoteMetadataLog
from ottla.broker.remote_tier.removed_partitions import RemovedPartitions
from ottla.broker.remote_tier.tier_metrics import TierMetrics
from ottla.broker.remote_tier.tiered_partition import TieredPartition
from ottla.log.log import Log
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.config_resources import ResourceType
from ottla.model.ids import REMOTE_LOG_METADATA_TOPIC
from ottla.model.steps import Steps
from ottla.ports import ObjectStore, ObjectStoreError
from ottla.replication.partition import Partition
from ottla.replication.throttle import RateLimit, rate_limit
from ottla.tiered.metadata_records import RemotePartition
from ottla.tiered.object_cache import MOST_BYTES, ObjectCache, ReadLimits
from ottla.tiered.remote_fetch import RemoteLog

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.config.broker import BrokerConfig

TASKS_AT_A_TIME: Final = 4
REFRESH_DELAY_MS: Final = 20
REPORT_INTERVAL_MS: Final = 10_000
_PARTITIONS_A_STEP: Final = 200


class RemoteTier:
    """Everything that a broker does with its object store."""

    def __init__(self, node: Node, store: ObjectStore) -> None:
        self.node = node
        self.store = store
        self.metrics = TierMetrics()
        self.metadata = RemoteMetadataLog(node, self._metadata_changed)
        self.partitions: dict[Partition, TieredPartition] = {}
        """The replicas here of tiered topics."""
        self._by_name: dict[RemotePartition, TieredPartition] = {}
        self.removed = RemovedPartitions(self)
        self.cache = ObjectCache(store, self, _read_limits(node.config))
        self._copy_limit: RateLimit | None = None
        self._read_limit: RateLimit | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0
        self._is_refreshing = False
        self._is_checking = False
        self.cleaning: object = None
        """The one remote clean that may run: it takes a helper process and the memory of a map."""
        self._tell_reads_ms = 0.0
        self._changed: dict[RemotePartition, None] = {}
        """Partitions with new records in the metadata."""
        node.on_config.append(self._reconfigure)
        node.hosted_logs.on_log_made.append(lambda partition: self.refresh_soon())
        self._reconfigure(node.config)
        self.refresh_soon()
        self._tick()

    def _reconfigure(self, config: BrokerConfig) -> None:
        tiered, now_ms = config.tiered, self.now_ms()
        self._copy_limit = rate_limit(
            self._copy_limit, tiered.remote_log_manager_copy_max_bytes_per_second, now_ms
        )
        self._read_limit = rate_limit(
            self._read_limit, tiered.remote_log_manager_fetch_max_bytes_per_second, now_ms
        )
        self.cache.limits = _read_limits(config)

    def report(self, message: str) -> None:
        """Tell the operator."""
        self.node.report(f"remote tier: {message}")

    # -- which partitions ----------------------------------------------------------------

    def follow(self, delta: MetadataDelta) -> None:
        """Follow the metadata, after the hosted logs have."""
        ended = self.removed.ended_topics
        ended.update(delta.topics.deleted)
        for name in delta.configs.changed_names(ResourceType.TOPIC):
            topic = self.node.image.topics.get(name)
            if topic is not None:
                if _is_tiered(self.node.image, name):
                    ended.discard(topic.topic_id)
                else:
                    ended.add(topic.topic_id)
        if delta.topics.changed or delta.topics.deleted or delta.brokers.changed or ended:
            self.refresh_soon()

    def refresh_soon(self) -> None:
        """Look for tiered replicas soon: they, or who leads them, may have changed."""
        if not self._is_refreshing:
            self._is_refreshing = True
            self.later(REFRESH_DELAY_MS, lambda: self._run(self._refresh()))

    def _run(self, steps: Steps[None]) -> None:
        self.node.sliced_work.run(steps)

    def _refresh(self) -> Steps[None]:
        self._is_refreshing = False
        seen: dict[Partition, TieredPartition] = {}
        for number, partition in enumerate(list(self.node.topics), 1):
            log = partition.log
            if log is not None and not partition.removed and log.config.remote_storage_enable:
                known = self.partitions.get(partition)
                seen[partition] = known or TieredPartition(self, partition)
            if not number % _PARTITIONS_A_STEP:
                yield
        for partition, tiered in self.partitions.items():
            if partition not in seen:
                tiered.replica_gone()
        self.partitions = seen
        self._by_name = {each.remote: each for each in seen.values()}
        if any(partition.leader is not None for partition in seen):
            self.metadata.create()
        self.metadata.follow(self._by_name)
        yield from self._check_all()

    def config_changed(self, log: Log) -> None:
        """Follow new settings of a log: its tier may have been turned off."""
        if not log.config.remote_storage_enable:
            log.forget_remote()
        self.refresh_soon()

    def uncleanable_reason(self, partition: RemotePartition) -> str | None:
        """Return why the remote part of a partition is not cleaned any more, if that is so."""
        tiered = self._by_name.get(partition)
        return None if tiered is None else tiered.compaction.uncleanable_reason

    def log_cleaned(self, log: Log) -> None:
        """Look at a log whose local part was cleaned: it can be copied, and cleaned remotely."""
        topic, index = log.topic_partition
        self._metadata_changed(RemotePartition(topic, log.topic_id, index))

    def is_tiered(self, partition: RemotePartition) -> bool:
        """Return True if the metadata has the topic of a partition, and it is tiered."""
        topic = self.node.image.topics_by_id.get(partition.topic_id)
        return topic is not None and _is_tiered(self.node.image, topic.name)

    # -- when to look --------------------------------------------------------------------

    def _tick(self) -> None:
        self.later(self.node.config.tiered.remote_log_manager_task_interval_ms, self._tick)
        if self.partitions or REMOTE_LOG_METADATA_TOPIC in self.node.image.topics:
            self.refresh_soon()

    def _check_all(self) -> Steps[None]:
        for tiered in list(self.partitions.values()):
            tiered.check()
            yield
        self.removed.check()

    def _metadata_changed(self, partition: RemotePartition) -> None:
        """Look at a partition again, with all that the metadata says now."""
        if not self._is_checking:
            self._is_checking = True
            self.later(0, lambda: self._run(self._check_changed()))
        self._changed[partition] = None
        tiered = self._by_name.get(partition)
        if tiered is not None:
            tiered.record_read()

    def _check_changed(self) -> Steps[None]:
        self._is_checking = False
        changed, self._changed = self._changed, {}
        for partition in changed:
            tiered = self._by_name.get(partition)
            if tiered is not None:
                tiered.check()
            yield
        self.removed.check()

    # -- tasks ---------------------------------------------------------------------------

    @property
    def tasks_running(self) -> int:
        """How many tasks have begun and not ended."""
        return self._running

    def run(self, task: Callable[[], None]) -> None:
        """Run a task when fewer than TASKS_AT_A_TIME run; it calls `ended` in the end."""
        self._waiting.append(task)
        self._run_more()

    def ended(self) -> None:
        """Take note that a task has ended."""
        self._running -= 1
        assert self._running >= 0
        self._run_more()

    def _run_more(self) -> None:
        while self._waiting and self._running < TASKS_AT_A_TIME:
            self._running += 1
            self._waiting.popleft()()

    def copy_wait_ms(self) -> float:
        """Return how long copies must wait, because of the limit; 0 if they need not."""
        limit = self._copy_limit
        return 0.0 if limit is None else limit.wait_ms(self.now_ms())

    def charge_copy(self, size: int) -> None:
        """Count what is copied."""
        if self._copy_limit is not None:
            self._copy_limit.charge(size, self.now_ms())

    # -- the host of the cache -----------------------------------------------------------

    def now_ms(self) -> float:
        return self.node.clock.monotonic_ms()

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call a function after a delay, in another wake-up."""
        self.node.timers.at(self.now_ms() + delay_ms, action)

    def read_wait_ms(self) -> float:
        """Return how long reads must wait, because of the limit; 0 if they need not."""
        limit = self._read_limit
        return 0.0 if limit is None else limit.wait_ms(self.now_ms())

    def charge_read(self, size: int) -> None:
        """Count what was read."""
        self.metrics.store_read_bytes += size
        if self._read_limit is not None:
            self._read_limit.charge(size, self.now_ms())

    def read_failed(self) -> None:
        """Count a read that failed."""
        self.metrics.store_errors += 1

    # -- reads ---------------------------------------------------------------------------

    def reads_failed(self, partition: Partition, error: ObjectStoreError) -> None:
        """Tell the operator that a consumer gets no old records, from time to time."""
        self.metrics.fetch_errors += 1
        now_ms = self.now_ms()
        if now_ms >= self._tell_reads_ms:
            self._tell_reads_ms = now_ms + REPORT_INTERVAL_MS
            self.report(f"{partition.name} cannot be read: {error}")

    def remote_log(self, partition: Partition, log: Log) -> RemoteLog | None:
        """Return the remote part of a log; None as long as it is not known."""
        tiered = self.partitions.get(partition)
        segments = None if tiered is None else tiered.segments
        return None if segments is None else RemoteLog(self.cache, log, segments)


def _is_tiered(image: MetadataImage, topic: str) -> bool:
    value = image.topic_config(topic).get("remote.storage.enable", "false")
    return value.strip().lower() == "true"


def _read_limits(config: BrokerConfig) -> ReadLimits:
    tiered = config.tiered
    return ReadLimits(
        tiered.remote_log_reader_threads,
        tiered.remote_log_reader_max_pending_tasks,
        min(tiered.remote_log_index_file_cache_total_size_bytes, MOST_BYTES),
    )
