"""The group coordinator of a broker: the groups that belong to the partitions it leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ottla.coordinator.groups.consumer.topic_patterns import TopicPatterns
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.member_memory import MemberMemory
from ottla.coordinator.groups.offset_expiration import delete_topic_offsets, expire_offsets
from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.host import CoordinatorHost, unavailable
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.coordinator.runtime.record import is_too_long
from ottla.coordinator.runtime.shard import Command
from ottla.coordinator.runtime.shard_runtime import RuntimeState, ShardRuntime
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.model.steps import Steps

_ACTIVE: Final = RuntimeState.ACTIVE  # a member of an enumeration is looked up slowly
_SAFE_CHARACTERS = 8000  # always fit into a string of a record, whatever they are


class GroupCoordinator:
    """Finds the shards of groups, and removes offsets that are no longer needed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.topic_patterns = TopicPatterns(broker)
        self.member_memory = MemberMemory()
        self.host = CoordinatorHost(OFFSETS_TOPIC, broker, self._new_shard)
        self.runtimes = self.host.runtimes
        self._schedule_expiration()

    def _new_shard(
        self, broker: Broker, run: Callable[[Command], None], max_batch_bytes: int
    ) -> GroupShard:
        return GroupShard(broker, run, max_batch_bytes, self.topic_patterns, self.member_memory)

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
        if runtime is None or runtime.state is not _ACTIVE:
            raise unavailable(runtime)
        return runtime

    def topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Delete the offsets that groups committed for topics, given by name with their ids."""
        for runtime in list(self.runtimes.values()):
            delete = partial(self._run, runtime, partial(delete_topic_offsets, runtime, topics))
            if runtime.state is RuntimeState.ACTIVE:
                delete()
            elif runtime.state is RuntimeState.LOADING:
                runtime.when_active.append(delete)

    def _run(self, runtime: ShardRuntime[GroupShard], work: Callable[[], Steps[None]]) -> None:
        """Do something with a shard in slices, as long as it serves."""
        self._broker.sliced_work.run(work(), lambda: runtime.is_active)

    # -- expiration ----------------------------------------------------------------------

    def _schedule_expiration(self) -> None:
        interval_ms = self._broker.config.offsets.offsets_retention_check_interval_ms
        self.host.after(interval_ms, self._expire_all)

    def _expire_all(self) -> None:
        """Expire offsets in one shard after the other, in slices."""
        self._broker.sliced_work.run(self._expire())
        self._schedule_expiration()

    def _expire(self) -> Steps[None]:
        for runtime in list(self.runtimes.values()):
            if runtime.is_active:
                yield from expire_offsets(runtime)
            yield
