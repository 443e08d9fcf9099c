"""Deletes the remote segments of partitions whose topic is gone, or is not tiered any more.

The leader of the partition of `__remote_log_metadata` that has their records does it (KIP-405), so
the deletion goes on whatever becomes of the brokers that had replicas. It is marked in the metadata
first. A new leader goes on where the last one stopped. A deletion that is marked goes on to its
end, also if the tier of the topic is turned on again: nothing is copied meanwhile. Of a topic that
is gone, everything that the store lists is deleted, also what no metadata names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.model.errors import ErrorCode
from ottla.ports import ObjectStoreDenied, ObjectStoreError, StoredObject
from ottla.tiered.layout import log_start_key
from ottla.tiered.metadata_records import (
    PartitionDelete,
    PartitionDeleteState,
    RemotePartition,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.tiered.remote_segments import RemoteSegments
from ottla.tiered.segment_upload import delete_keys, delete_objects, prefix_of

if TYPE_CHECKING:
    from ottla.broker.remote_tier.remote_tier import RemoteTier

SURE_AFTER_MS: Final = 60_000
"""A topic that is missing for this long is deleted: the metadata of this broker may lag."""
RETRY_MS: Final = 5_000
READ_AGAIN_MS: Final = 20
_PAGE: Final = 1000


class RemovedPartitions:
    """The partitions whose remote segments this broker deletes."""

    def __init__(self, tier: RemoteTier) -> None:
        self._tier = tier
        self.ended_topics: set[bytes] = set()
        """Topics that this broker has seen being deleted, or their tier being turned off."""
        self._missing_since: dict[RemotePartition, float] = {}
        self._under_way: set[RemotePartition] = set()

    def check(self) -> None:
        """Begin the deletion of what is not needed any more."""
        now_ms = self._tier.node.monotonic_ms
        missing: dict[RemotePartition, float] = {}
        for state in self._tier.metadata.led():
            for partition, segments in state.partitions.items():
                if not segments.has_records:
                    continue  # nothing was ever stored
                if segments.delete_state is None and self._tier.is_tiered(partition):
                    continue
                since_ms = self._missing_since.get(partition, now_ms)
                missing[partition] = since_ms
                is_sure = (
                    partition.topic_id in self.ended_topics
                    or segments.delete_state is not None
                    or now_ms - since_ms >= SURE_AFTER_MS
                )
                if is_sure and partition not in self._under_way and not self._tier.node.is_cut_off:
                    self._under_way.add(partition)
                    self._tier.run(_Removal(self._tier, partition, segments, self._ended).begin)
        self._missing_since = missing

    def _ended(self, partition: RemotePartition, problem: str | None) -> None:
        self._tier.ended()
        if problem is None:
            self._under_way.discard(partition)
            return
        self._tier.report(f"{partition.topic}-{partition.partition}: {problem}; trying again")
        self._tier.later(RETRY_MS, lambda: self._under_way.discard(partition))
        self._tier.later(RETRY_MS, self.check)


class _Removal:
    """The deletion of one partition's remote segments."""

    def __init__(
        self,
        tier: RemoteTier,
        partition: RemotePartition,
        segments: RemoteSegments,
        ended: Callable[[RemotePartition, str | None], None],
    ) -> None:
        self._tier = tier
        self._partition = partition
        self._segments = segments
        self._deleted: set[bytes] = set()
        self._ended = ended

    @property
    def _is_mine(self) -> bool:
        """True while this broker leads the metadata, and nobody has finished the deletion."""
        led = self._tier.metadata.led()
        return any(state.partitions.get(self._partition) is self._segments for state in led)

    def begin(self) -> None:
        """Mark the partition, then delete one segment after the other.

        Which segments there are is known only once the marks are read back.
        """
        state = self._segments.delete_state
        if not self._is_mine:
            self._ended(self._partition, None)
        elif state == PartitionDeleteState.STARTED:
            self._next()
        elif state == PartitionDeleteState.MARKED:
            self._mark(PartitionDeleteState.STARTED, lambda: self._wait_for_more_than(state))
        elif self._tier.is_tiered(self._partition):  # it was turned on again
            self._ended(self._partition, None)
        else:
            self._mark(PartitionDeleteState.MARKED, lambda: self._wait_for_more_than(state))

    def _wait_for_more_than(self, state: PartitionDeleteState | None) -> None:
        """Go on when a mark was read back."""
        if self._is_mine and self._segments.delete_state == state:
            self._tier.later(READ_AGAIN_MS, lambda: self._wait_for_more_than(state))
        else:
            self.begin()

    def _mark(self, state: PartitionDeleteState, then: Callable[[], None]) -> None:
        node = self._tier.node
        record = PartitionDelete(self._partition, node.node_id, node.clock.wall_ms(), state)
        self._tier.metadata.write(record, self._checked(then))

    def _checked(self, then: Callable[[], None]) -> Callable[[ErrorCode], None]:
        def written(code: ErrorCode) -> None:
            if code:
                problem = f"the deletion of remote segments cannot be written: {code.name}"
                self._ended(self._partition, problem)
            else:
                then()

        return written

    def _next(self) -> None:
        if not self._is_mine:
            self._ended(self._partition, None)
            return
        found = self._segments.segments.items()
        segment = next((each for key, each in found if key not in self._deleted), None)
        if segment is None:
            self._delete_rest()
            return
        self._deleted.add(segment.segment_id)
        if segment.state == SegmentState.DELETE_STARTED:
            self._delete(segment)
        else:
            self._update(segment, SegmentState.DELETE_STARTED, lambda: self._delete(segment))

    def _delete(self, segment: SegmentMetadata) -> None:
        def deleted(error: OSError | None) -> None:
            if error is not None:
                self._tier.metrics.deletion_errors += 1
                self._ended(self._partition, f"remote segments cannot be deleted: {error}")
            else:
                self._tier.cache.forget(segment.segment_id)
                self._update(segment, SegmentState.DELETE_FINISHED, self._next)

        self._tier.metrics.deletions += 1
        delete_objects(self._tier.store, segment, deleted)

    def _update(
        self, segment: SegmentMetadata, state: SegmentState, then: Callable[[], None]
    ) -> None:
        node = self._tier.node
        at_ms = node.clock.wall_ms()
        update = SegmentUpdate(self._partition, segment.segment_id, node.node_id, at_ms, state)
        self._tier.metadata.write(update, self._checked(then))

    def _delete_rest(self) -> None:
        """Delete what is not of a segment; of a topic that is gone, everything.

        A broker that may not list objects deletes only what it knows.
        """
        store, prefix = self._tier.store, prefix_of(self._partition)
        if self._partition.topic_id in self._tier.node.image.topics_by_id:
            store.delete(log_start_key(prefix), self._rest_deleted)
            return

        def listed(result: list[StoredObject] | ObjectStoreError) -> None:
            if isinstance(result, ObjectStoreDenied):
                store.delete(log_start_key(prefix), self._rest_deleted)
            elif isinstance(result, ObjectStoreError):
                self._rest_deleted(result)
            elif result:
                after = result[-1].key
                delete_keys(store, [each.key for each in result], partial(deleted, after))
            else:
                self._rest_deleted(None)

        def deleted(after: str, error: OSError | None) -> None:
            if error is not None:
                self._rest_deleted(error)
            else:
                store.list(prefix, after, _PAGE, listed)

        store.list(prefix, "", _PAGE, listed)

    def _rest_deleted(self, error: OSError | None) -> None:
        if error is not None:
            self._tier.metrics.deletion_errors += 1
            self._ended(self._partition, f"remote segments cannot be deleted: {error}")
        else:
            self._mark(PartitionDeleteState.FINISHED, lambda: self._ended(self._partition, None))
