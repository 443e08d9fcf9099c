"""The group coordinator of a broker: its shards, loaded and unloaded with leadership.

A group belongs to the partition of __consumer_offsets that its id hashes to, and to the
broker that leads it. Shards are loaded a piece at a time between wake-ups, one after the
other; meanwhile requests for them hear COORDINATOR_LOAD_IN_PROGRESS. A shard whose log fails
is loaded anew after a pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.coordinator.consumer.topic_patterns import TopicPatterns
from ottla.coordinator.expiration import expire, forget_topic
from ottla.coordinator.partitions import partition_of
from ottla.coordinator.rewriting import Rewriting, is_overgrown
from ottla.coordinator.runtime import RuntimeState, ShardRuntime
from ottla.coordinator.serde import is_too_long
from ottla.coordinator.surroundings import Client
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.node import Node

RELOAD_DELAY_MS = 1000
_PAUSE_MS = 0.1  # so that other work comes between two pieces
_REWRITE_PAUSE_MS = 5
_SIZE_CHECK_MS = 5000
_SAFE_CHARACTERS = 8000  # are fewer bytes than a record's string may have


class GroupCoordinator:
    """All groups this broker coordinates."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.topic_patterns = TopicPatterns(node.image)
        self.runtimes: dict[int, ShardRuntime] = {}
        """By partition of __consumer_offsets; those that failed stay until they are replaced."""
        self._num_partitions = 0
        self._to_load: deque[ShardRuntime] = deque()
        node.hosting.on_log_made.append(self._log_made)
        self._schedule_expiration()
        self._after(_SIZE_CHECK_MS, self._check_sizes)
        self.load()

    def load(self) -> None:
        """Begin with the shards of the partitions there are; nothing if it has begun."""
        topic = self._node.image.topics.get(OFFSETS_TOPIC)
        if topic is not None and not self._num_partitions:
            self._adopt_all(topic)

    # -- finding -------------------------------------------------------------------------

    def runtime_of(self, group_id: str) -> ShardRuntime:
        """The loaded shard of a group; ApiError while there is none here."""
        if not self._num_partitions:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if len(group_id) > _SAFE_CHARACTERS and is_too_long(group_id):
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        runtime = self.runtimes.get(partition_of(group_id, self._num_partitions))
        if runtime is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if runtime.state is not RuntimeState.ACTIVE:
            raise ApiError(_unavailable(runtime))
        return runtime

    def all_active(self) -> Iterator[ShardRuntime]:
        """All shards; ApiError if one is not loaded."""
        for runtime in self.runtimes.values():
            if runtime.state is not RuntimeState.ACTIVE:
                raise ApiError(_unavailable(runtime))
            yield runtime

    def partition_for(self, group_id: str) -> int:
        """Return the partition of __consumer_offsets a group belongs to."""
        if not self._num_partitions:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition_of(group_id, self._num_partitions)

    # -- loading and unloading -----------------------------------------------------------

    def _adopt_all(self, topic: TopicImage) -> None:
        # As long as the broker runs: groups would move if partitions were added.
        self._num_partitions = len(topic.partitions)
        for index in range(len(topic.partitions)):
            self._adopt(index)

    def _adopt(self, index: int) -> None:
        """Begin to coordinate the groups of a partition that this broker leads."""
        partition = self._partition(index)
        if partition is None or partition.log is None:
            return
        runtime = ShardRuntime(self._node, partition, self._node.append_internal, self._failed)
        self.runtimes[index] = runtime
        if partition.log.log_start_offset == partition.log.high_watermark:
            runtime.load()
            return
        self._to_load.append(runtime)
        if len(self._to_load) == 1:
            self._after(_PAUSE_MS, self._load_some)

    def _load_some(self) -> None:
        if self._to_load and self._to_load[0].load():
            self._to_load.popleft()
        if self._to_load:
            self._after(_PAUSE_MS, self._load_some)

    def _failed(self, runtime: ShardRuntime) -> None:
        self._after(RELOAD_DELAY_MS, partial(self._replace, runtime))

    def _replace(self, runtime: ShardRuntime) -> None:
        index = runtime.partition.index
        if self.runtimes.get(index) is runtime:
            self._adopt(index)

    def _partition(self, index: int) -> Partition | None:
        topic = self._node.topics.named(OFFSETS_TOPIC)
        return None if topic is None else topic.partitions.get(index)

    # -- metadata ------------------------------------------------------------------------

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata, after the hosted logs have."""
        self.topic_patterns.follow(delta, image)
        for topic in delta.topics.deleted.values():
            self._removed(topic.name)
        offsets_topic = image.topics.get(OFFSETS_TOPIC)
        if offsets_topic is not None and offsets_topic.topic_id in delta.topics.changed:
            for index in delta.topics.changed[offsets_topic.topic_id].partitions:
                self._lead_on(index)
        self.load()

    def _log_made(self, partition: Partition) -> None:
        if partition.topic.name == OFFSETS_TOPIC and partition.index not in self.runtimes:
            self._adopt(partition.index)

    def _lead_on(self, index: int) -> None:
        runtime, partition = self.runtimes.get(index), self._partition(index)
        if runtime is not None and partition is not None:
            runtime.leader_epoch = partition.leader_epoch

    def _removed(self, name: str) -> None:
        if name == OFFSETS_TOPIC:
            self._num_partitions = 0
            for runtime in self.runtimes.values():
                runtime.close(ErrorCode.NOT_COORDINATOR)
            self.runtimes.clear()
            self._to_load.clear()
            return
        for runtime in self.runtimes.values():
            if runtime.state is RuntimeState.ACTIVE:
                runtime.write_in_parts(forget_topic(runtime.shard, name))
            elif runtime.state is RuntimeState.LOADING:
                runtime.when_loaded.append(partial(forget_topic, runtime.shard, name))

    # -- periodic work -------------------------------------------------------------------

    def _schedule_expiration(self) -> None:
        interval_ms = self._node.config.offsets_retention_check_interval_ms
        self._after(interval_ms, self._expire_all)

    def _expire_all(self) -> None:
        """Look over one shard after the other, with pauses for other work between them."""
        self._expire_next(list(self.runtimes))
        self._schedule_expiration()

    def _expire_next(self, indexes: list[int]) -> None:
        if not indexes:
            return
        runtime = self.runtimes.get(indexes.pop())
        if runtime is not None and runtime.state is RuntimeState.ACTIVE:
            runtime.write_in_parts(expire(runtime.shard))
        self._after(_PAUSE_MS, partial(self._expire_next, indexes))

    def _check_sizes(self) -> None:
        """Look for a log that holds much more than its shard's state, and rewrite that."""
        overgrown = next((r for r in self.runtimes.values() if is_overgrown(r)), None)
        if overgrown is None:
            self._after(_SIZE_CHECK_MS, self._check_sizes)
        else:
            self._rewrite(Rewriting(overgrown), overgrown.partition)

    def _rewrite(self, rewriting: Rewriting, partition: Partition) -> None:
        try:
            is_over = rewriting.step()
        except OSError as error:
            self._node.storage_failed(partition, error)
            is_over = True
        if is_over:
            self._after(_SIZE_CHECK_MS, self._check_sizes)
        else:
            self._after(_REWRITE_PAUSE_MS, partial(self._rewrite, rewriting, partition))

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._node.timers.at(self._node.monotonic_ms + delay_ms, action)


def _unavailable(runtime: ShardRuntime) -> ErrorCode:
    if runtime.state is RuntimeState.LOADING:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def client_of(context: RequestContext) -> Client:
    """Who sent a request, as members are described: the host as Java writes an address."""
    return Client(context.client_id or "", f"/{context.connection.peer_host}", context.version)
