"""The group coordinator of a broker: the groups that belong to the partitions it leads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.coordinator.groups.consumer.topic_patterns import TopicPatterns
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.offset_expiration import (
    deleted_topic_tombstones,
    expiration_tombstones,
)
from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.host import SLICE_PAUSE_MS, CoordinatorHost, unavailable
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.coordinator.runtime.record import is_too_long
from ottla.coordinator.runtime.shard import Command
from ottla.coordinator.runtime.shard_runtime import RuntimeState, ShardRuntime
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC

_SAFE_CHARACTERS = 8000  # always fit into a string of a record, whatever they are


class GroupCoordinator:
    """Finds the shards of groups, and removes offsets that are no longer needed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.topic_patterns = TopicPatterns(broker)
        self.host = CoordinatorHost(OFFSETS_TOPIC, broker, self._new_shard)
        self.runtimes = self.host.runtimes
        self._schedule_expiration()

    def _new_shard(
        self, broker: Broker, run: Callable[[Command], None], max_batch_bytes: int
    ) -> GroupShard:
        return GroupShard(broker, run, max_batch_bytes, self.topic_patterns)

    def load(self) -> None:
        """Begin to load the groups of all partitions that this broker leads."""
        self.host.refresh()

    def runtime_of(self, group_id: str) -> ShardRuntime[GroupShard]:
        """Return the runtime of a group's shard. Raise ApiError if it does not serve here now."""
        num_partitions = self.host.num_partitions
        if not num_partitions:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if len(group_id) > _SAFE_CHARACTERS and is_too_long(group_id):
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        runtime = self.runtimes.get(partition_of(group_id, num_partitions))
        if runtime is None or runtime.state is not RuntimeState.ACTIVE:
            raise unavailable(runtime)
        return runtime

    def topic_deleted(self, name: str) -> None:
        """Delete the offsets that groups committed for a topic."""
        for runtime in self.runtimes.values():
            if runtime.state is RuntimeState.ACTIVE:
                runtime.write_in_parts(deleted_topic_tombstones(runtime.shard, name))
            elif runtime.state is RuntimeState.LOADING:
                runtime.when_active.append(partial(deleted_topic_tombstones, runtime.shard, name))

    # -- expiration ----------------------------------------------------------------------

    def _schedule_expiration(self) -> None:
        interval_ms = self._broker.config.offsets.offsets_retention_check_interval_ms
        self.host.after(interval_ms, self._expire_all)

    def _expire_all(self) -> None:
        """Expire offsets in one shard after the other, with pauses for other work."""
        self._expire_next(list(self.runtimes))
        self._schedule_expiration()

    def _expire_next(self, indexes: list[int]) -> None:
        if not indexes:
            return
        runtime = self.runtimes.get(indexes.pop())
        if runtime is not None and runtime.state is RuntimeState.ACTIVE:
            runtime.write_in_parts(expiration_tombstones(runtime.shard))
        self.host.after(SLICE_PAUSE_MS, partial(self._expire_next, indexes))
