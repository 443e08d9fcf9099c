"""The shards of one internal topic that this broker coordinates.

A broker coordinates what belongs to the partitions that it leads. `refresh` follows the
metadata: it loads the shards of partitions that this broker leads now, and unloads the others.
A few shards are loaded side by side, the small ones first, a slice at a time between wake-ups.
Each serves as soon as it is loaded. A shard whose log fails is loaded again after a pause.

Requests for a shard that does not serve get one of these errors:

    NOT_COORDINATOR                 another broker leads the partition, or nobody does
    COORDINATOR_LOAD_IN_PROGRESS    the shard is being loaded
    COORDINATOR_NOT_AVAILABLE       its log failed, and it waits to be loaded again
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic

from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.loader import Progress
from ottla.coordinator.runtime.log_growth import LogGrowth, log_size
from ottla.coordinator.runtime.shard_runtime import NewShard, RuntimeState, S, ShardRuntime
from ottla.metadata.image import PartitionImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.replication.partition import Partition

RELOAD_DELAY_MS = 1000
SLICE_PAUSE_MS = 0.1
"""The pause between two slices of background work, in which requests are served."""
_COMMIT_CHECK_MS = 10
_SIDE_BY_SIDE = 4
"""How many shards are loaded at the same time: some wait for bytes while others are replayed."""


class CoordinatorHost(Generic[S]):
    """Loads, serves and unloads the shards of one topic."""

    def __init__(self, topic_name: str, broker: Broker, new_shard: NewShard[S]) -> None:
        self.topic_name = topic_name
        self.num_partitions = 0
        """Partitions of the topic, 0 if it does not exist.

        Fixed while the topic exists: ids would belong to other partitions if some were added.
        """
        self.runtimes: dict[int, ShardRuntime[S]] = {}
        """By partition. One that failed stays here until it is loaded again."""
        self._broker = broker
        self._new_shard = new_shard
        self._topic_id: bytes | None = None
        self._to_load: list[ShardRuntime[S]] = []
        self._loading: deque[ShardRuntime[S]] = deque()
        self._is_slice_due = False
        self._is_loading = False
        """True from the first slice to the last: garbage collections wait."""
        LogGrowth(broker, self.runtimes)

    # -- requests ------------------------------------------------------------------------

    def runtime_of(self, index: int) -> ShardRuntime[S]:
        """Return the runtime of a partition. Raise ApiError if it does not serve here now."""
        runtime = self.runtimes.get(index)
        if runtime is None or runtime.state is not RuntimeState.ACTIVE:
            raise unavailable(runtime)
        return runtime

    def active_runtimes(self) -> Iterator[ShardRuntime[S]]:
        """Iterate over all runtimes. Raise ApiError at the first one that does not serve."""
        for runtime in self.runtimes.values():
            if runtime.state is not RuntimeState.ACTIVE:
                raise unavailable(runtime)
            yield runtime

    # -- leadership ----------------------------------------------------------------------

    def refresh(self) -> None:
        """Load and unload shards to match the partitions that this broker leads now.

        Call it when the metadata of the topic has changed, after the logs have followed.
        """
        topic = self._broker.image.topics.get(self.topic_name)
        topic_id = None if topic is None else topic.topic_id
        if topic_id != self._topic_id:
            for index in list(self.runtimes):
                self._unload(index)
            self._topic_id = topic_id
            self.num_partitions = 0 if topic is None else len(topic.partitions)
        if topic is not None:
            for partition in topic.partitions[: self.num_partitions]:
                self._refresh_partition(partition)

    def partition_led(self, partition: Partition) -> None:
        """Load the shard of a partition that had no log, or no leader, until now."""
        if partition.topic.name == self.topic_name and self.num_partitions:
            runtime = self.runtimes.get(partition.index)
            if runtime is None or runtime.state is RuntimeState.CLOSED:
                self._load(partition.index)

    def _refresh_partition(self, image: PartitionImage) -> None:
        index = image.partition_id
        runtime = self.runtimes.get(index)
        if image.leader != self._broker.node_id:
            self._unload(index)
        elif runtime is None:
            self._load(index)
        else:  # it goes on in the new leader epoch
            runtime.leader_epoch = runtime.partition.leader_epoch

    def _unload(self, index: int) -> None:
        runtime = self.runtimes.pop(index, None)
        if runtime is not None:
            runtime.close(ErrorCode.NOT_COORDINATOR)

    # -- loading -------------------------------------------------------------------------

    def _load(self, index: int) -> None:
        topic = self._broker.topics.named(self.topic_name)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is None or partition.log is None or partition.leader is None:
            return  # `partition_led` is called later; after a start, metadata may be out of date
        runtime = ShardRuntime(self._broker, partition, self._new_shard, self._failed)
        self.runtimes[index] = runtime
        if partition.log.log_start_offset == partition.log.log_end_offset:
            runtime.load(self._schedule_slice)
            self._activate(runtime)
            return
        self._to_load.append(runtime)
        self._schedule_slice()

    def _schedule_slice(self) -> None:
        if not self._is_slice_due:
            self._is_slice_due = True
            self.after(SLICE_PAUSE_MS, self._load_slice)

    def _load_slice(self) -> None:
        """Replay a slice of the next shard that does not wait for bytes of its log."""
        self._is_slice_due = False
        loading = self._loading
        while self._to_load and len(loading) < _SIDE_BY_SIDE:
            loading.append(self._smallest())
        for _ in range(len(loading)):
            runtime = loading.popleft()
            progress = runtime.load(self._schedule_slice)
            if progress is Progress.DONE:
                self._activate(runtime)
            else:
                loading.append(runtime)
            if progress is not Progress.WAITING:
                self._schedule_slice()
                break
        self._pause_collection(bool(loading or self._to_load))

    def _pause_collection(self, is_loading: bool) -> None:
        """Let no garbage collection look at what is loaded: nearly all of it stays."""
        if is_loading is not self._is_loading:
            self._is_loading = is_loading
            self._broker.pause_collection(is_loading)

    def _smallest(self) -> ShardRuntime[S]:
        smallest = min(self._to_load, key=log_size)
        self._to_load.remove(smallest)
        return smallest

    def _activate(self, runtime: ShardRuntime[S]) -> None:
        if not runtime.activate():
            self.after(_COMMIT_CHECK_MS, partial(self._activate, runtime))

    def _failed(self, runtime: ShardRuntime[S]) -> None:
        self.after(RELOAD_DELAY_MS, partial(self._reload, runtime))

    def _reload(self, failed: ShardRuntime[S]) -> None:
        index = failed.partition.index
        if self.runtimes.get(index) is failed:
            self._load(index)

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call `action` later."""
        self._broker.timers.at(self._broker.monotonic_ms + delay_ms, action)


def unavailable(runtime: ShardRuntime[Any] | None) -> ApiError:
    """Return the error for requests to a shard that does not serve here now."""
    if runtime is None:
        return ApiError(ErrorCode.NOT_COORDINATOR)
    if runtime.state is RuntimeState.LOADING:
        return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
