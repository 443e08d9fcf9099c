"""A replica of a tiered topic: its leader copies, expires and deletes remote segments.

One task runs at a time. A copy is:

    COPY_STARTED is written    from now on others know that there may be objects
    the objects are stored     the manifest last
    COPY_FINISHED is written   when it is committed and read back, the local segment may be deleted

A task ends when this broker stops leading. What it leaves behind, the next leader finishes: it
deletes segments whose deletion has begun, and copies whose upload has not ended once it has copied
their records itself. Until then it does not know whether the other leader may still finish.

Leader and followers do the rest alike: they know from the metadata what is copied, so that
retention may delete local segments, and how far the remote part is clean, so that the cleaner may
remove tombstones.

The leader of a compacted log also rewrites remote segments (`remote_clean.py`), besides the other
tasks. It deletes what was replaced after file.delete.delay.ms: readers may be in the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.remote_tier.copy_task import CopyTask
from ottla.broker.remote_tier.leftovers import Leftovers
from ottla.broker.remote_tier.remote_compaction import RemoteCompaction
from ottla.broker.remote_tier.tier_metrics import NO_FIGURES, figures_of
from ottla.log.log import Log
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.model.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.tiered.layout import encode_log_start, log_start_key
from ottla.tiered.metadata_records import (
    RemotePartition,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.tiered.remote_cleanable import clean_offset, remote_parts
from ottla.tiered.remote_segments import RemoteSegments
from ottla.tiered.segment_files import describe_segment, next_to_copy, objects_of
from ottla.tiered.segment_upload import delete_keys, delete_objects, prefix_of

if TYPE_CHECKING:
    from ottla.broker.remote_tier.remote_tier import RemoteTier

FIRST_RETRY_MS: Final = 500
LONGEST_RETRY_MS: Final = 60_000
SURE_AFTER_MS: Final = 5_000
"""How long to wait for remote segments before a log without any begins with its local ones."""


class TieredPartition:
    """The remote part of one replica."""

    def __init__(self, tier: RemoteTier, partition: Partition) -> None:
        topic = partition.topic
        self.tier = tier
        self.partition = partition
        self.remote = RemotePartition(topic.name, topic.topic_id, partition.index)
        self.copy: CopyTask | None = None
        """The copy that is under way."""
        self.compaction = RemoteCompaction(self)
        self._is_busy = self._is_waiting = False
        self._is_gone = False
        """True once there was no tiered replica. If there is one again, another object has it."""
        self._failures = 0
        self._empty_since_ms: float | None = None
        self._figures = NO_FIGURES
        self._stored_start = -1
        """The log start offset that the store has, as far as this broker knows."""
        self._leftovers = Leftovers(tier.store, prefix_of(self.remote))
        self._orphans: list[str] = []
        """Objects to delete that belong to no segment."""

    @property
    def name(self) -> str:
        return self.partition.name

    @property
    def log(self) -> Log | None:
        """The log, while it is online and the topic is tiered."""
        log = self.partition.log
        if log is None or self.partition.removed or not log.config.remote_storage_enable:
            return None
        if self._is_gone:
            return None
        return log

    @property
    def segments(self) -> RemoteSegments | None:
        """The remote segments; None as long as not all of them are known."""
        return self.tier.metadata.segments_of(self.remote)

    # -- what every replica does ---------------------------------------------------------

    def check(self) -> None:
        """Follow the metadata, and do what there is to do."""
        log, segments = self.log, self.segments
        if log is None or segments is None:
            return
        if segments.delete_state is None:
            self._follow(log, segments)
        if self.copy is not None:
            self.copy.metadata_changed(segments)
        self.compaction.metadata_changed(segments)
        if segments.delete_state is not None:
            return  # the tier was turned off, and on again: first all that it had is deleted
        if self.partition.leader is None:
            self.forget_figures()
            return
        before, self._figures = self._figures, figures_of(log, segments)
        self.tier.metrics.replace(before, self._figures)
        self._lead(log, segments)

    def record_read(self) -> None:
        """Take note that the metadata has another record about this partition."""
        segments = self.segments
        for copy in (self.copy, self.compaction.copy):
            if copy is not None and segments is not None:
                copy.note(segments)

    def replica_gone(self) -> None:
        """End what is under way: this broker has no tiered replica of the partition any more."""
        self._is_gone = True
        self.forget_figures()
        self.forget_stored_start()
        for copy in (self.copy, self.compaction.copy):
            if copy is not None:
                copy.replica_gone()

    def forget_figures(self) -> None:
        """Take the figures of this partition out of the sums: another broker counts it."""
        before, self._figures = self._figures, NO_FIGURES
        self.tier.metrics.replace(before, NO_FIGURES)

    def _follow(self, log: Log, segments: RemoteSegments) -> None:
        highest = segments.highest_offset(log.leader_epochs, log.written_end)
        is_compacted = log.config.compacts
        log.note_remote(
            highest, clean_offset(remote_parts(log, segments), highest) if is_compacted else 0
        )
        lowest = segments.lowest_offset(log.leader_epochs)
        if lowest is not None:
            self._empty_since_ms = None
        elif log.log_start_offset < log.local_log_start_offset and not self._is_surely_empty():
            return
        local_start = log.local_log_start_offset
        start = local_start if lowest is None else min(lowest, local_start)
        if log.log_start_offset < start <= log.high_watermark:
            log.advance_log_start(start)
            self.partition.notify()

    def _is_surely_empty(self) -> bool:
        now_ms = self.tier.node.monotonic_ms
        if self._empty_since_ms is None:
            self._empty_since_ms = now_ms
        return now_ms - self._empty_since_ms >= SURE_AFTER_MS

    # -- what the leader does ------------------------------------------------------------

    def _lead(self, log: Log, segments: RemoteSegments) -> None:
        if log.config.compacts:
            self.compaction.check(log, segments)
        if self._is_busy:
            return
        self._expire(log, segments)
        doomed = self._doomed(log, segments)
        if doomed is not None:
            self._begin(lambda: self._delete(doomed))
        elif self._orphans:
            self._begin(self._delete_orphans)
        elif self._must_store_start(log, segments):
            self._begin(lambda: self._store_start(log.log_start_offset))
        elif not log.config.remote_log_copy_disable:
            self._copy_next(log)

    def _begin(self, task: Callable[[], None]) -> None:
        """Run a task when it has its turn."""
        self._is_busy = True
        self.tier.run(task)

    def done(self, problem: str | None = None) -> None:
        """End a task, and go on with the next one. After a failure nothing is tried for a while."""
        self.tier.ended()
        self.copy = None
        if problem is None:
            self._failures = 0
            self.tier.later(0, self._go_on)
        else:
            self.tier.later(self._delay_ms(problem), self._go_on)

    def _go_on(self) -> None:
        self._is_busy = False
        self.check()

    def repeat(self, problem: str, task: Callable[[], None]) -> None:
        """Run a task again after a while, because it failed."""
        self.tier.ended()
        self.tier.later(self._delay_ms(problem), lambda: self.tier.run(task))

    def _delay_ms(self, problem: str) -> float:
        """Tell the operator of a failure, and return how long to wait now."""
        delay_ms: float = min(FIRST_RETRY_MS << min(self._failures, 20), LONGEST_RETRY_MS)
        if self._failures == 0 or delay_ms == LONGEST_RETRY_MS:
            self.tier.report(f"{self.name}: {problem}; trying again")
        self._failures += 1
        return delay_ms

    # retention

    def _expire(self, log: Log, segments: RemoteSegments) -> None:
        """Advance the log start offset over remote segments that retention does not keep.

        A segment without records, of a compacted topic, goes with the one before it.
        """
        config, now_ms = log.config, self.tier.node.wall_ms
        if not config.deletes:
            return
        start, excess = log.log_start_offset, -1
        chain = list(segments.chain(start, log.leader_epochs, has_gaps=config.compacts))
        if config.retention_bytes >= 0:
            local = sum(s.size for s in log if s.base_offset > log.highest_remote_offset)
            excess = sum(s.size for s in chain) + local - config.retention_bytes
        for segment in chain:
            timestamp = segment.max_timestamp_ms
            age_ms = now_ms - (segment.event_timestamp_ms if timestamp < 0 else timestamp)
            excess -= segment.size
            is_too_old = 0 <= config.retention_ms < age_ms or not segment.size
            if not is_too_old and (config.retention_bytes < 0 or excess < 0):
                break
            start = min(segment.end_offset + 1, log.high_watermark)
        if start > log.log_start_offset:
            log.advance_log_start(start)
            self.partition.notify()

    def _doomed(self, log: Log, segments: RemoteSegments) -> SegmentMetadata | None:
        """Return a segment to delete: expired, replaced, given up by others, or half deleted.

        A replaced segment is kept as long as readers may be in the middle of it.
        """
        delay_ms, now_ms = log.config.file_delete_delay_ms, self.tier.node.clock.wall_ms()
        for segment_id, segment in segments.segments.items():
            replaced_ms = segments.replaced.get(segment_id)
            if (
                segment.state == SegmentState.DELETE_STARTED
                or segment.end_offset < log.log_start_offset
                or (replaced_ms is not None and replaced_ms + delay_ms <= now_ms)
                or (
                    segment.state == SegmentState.COPY_STARTED
                    and segment.end_offset <= log.highest_remote_offset
                    and not self.compaction.is_copying(segment_id)
                )
            ):
                return segment
        if segments.replaced:
            self._look_again(min(segments.replaced.values()) + delay_ms - now_ms)
        return None

    def _look_again(self, delay_ms: float) -> None:
        """Look for something to do after a while."""
        if not self._is_waiting:
            self._is_waiting = True
            self.tier.later(max(delay_ms, 1), self._waited)

    def _waited(self) -> None:
        self._is_waiting = False
        self.check()

    def _delete(self, segment: SegmentMetadata) -> None:
        """Delete a segment: write that, delete its objects, write that it is done."""

        def started(code: ErrorCode) -> None:
            if code:
                self.done(f"the deletion of a remote segment cannot be written: {code.name}")
            else:
                self.tier.metrics.deletions += 1
                delete_objects(self.tier.store, segment, deleted)

        def deleted(error: OSError | None) -> None:
            if error is not None:
                self.tier.metrics.deletion_errors += 1
                self.done(f"a remote segment cannot be deleted: {error}")
            else:
                self.write(segment, SegmentState.DELETE_FINISHED, finished)

        def finished(code: ErrorCode) -> None:
            if code:
                self.done(f"the deletion of a remote segment cannot be written: {code.name}")
                return
            self.tier.cache.forget(segment.segment_id)
            if segment.state == SegmentState.COPY_STARTED:
                self._leftovers.look_again(self.tier.now_ms())  # its broker may still store some
            self.done()

        if self.partition.leader is None:
            self.done()
        elif segment.state == SegmentState.DELETE_STARTED:
            started(ErrorCode.NONE)
        else:
            self.write(segment, SegmentState.DELETE_STARTED, started)

    def _delete_orphans(self) -> None:
        def deleted(error: OSError | None) -> None:
            if error is not None:
                self.tier.metrics.deletion_errors += 1
                self.done(f"objects of an upload that was given up cannot be deleted: {error}")
            else:
                self._orphans.clear()
                self.done()

        delete_keys(self.tier.store, list(self._orphans), deleted)

    def write(
        self, segment: SegmentMetadata, state: SegmentState, done: Callable[[ErrorCode], None]
    ) -> None:
        """Write a new state of a segment."""
        node = self.tier.node
        self.tier.metadata.write(
            SegmentUpdate(
                self.remote, segment.segment_id, node.node_id, node.clock.wall_ms(), state
            ),
            done,
        )

    # the log start offset, for readers without a broker

    def _must_store_start(self, log: Log, segments: RemoteSegments) -> bool:
        """Return True if the store has records before the log start offset, and does not say so."""
        start, lowest = log.log_start_offset, segments.lowest_offset(log.leader_epochs)
        if lowest is None or start == self._stored_start:
            return False
        first = segments.find(start, log.leader_epochs)
        return start > (lowest if first is None else min(lowest, first.start_offset))

    def _store_start(self, offset: int) -> None:
        def stored(error: OSError | None) -> None:
            self.forget_stored_start()
            if error is None:
                self.done()
            else:
                self._stored_start = -1
                self.done(f"the log start offset cannot be stored: {error}")

        self._stored_start = offset
        key = log_start_key(prefix_of(self.remote))
        self.tier.store.put(key, encode_log_start(offset), stored)

    def forget_stored_start(self) -> None:
        """Delete the log start offset again if the topic is gone, or not tiered any more.

        The broker that deletes what is left of the topic may have been faster.
        """
        if self._stored_start >= 0 and not self.tier.is_tiered(self.remote):
            self.tier.store.delete(log_start_key(prefix_of(self.remote)), lambda error: None)

    # copies

    def _copy_next(self, log: Log) -> None:
        found = next_to_copy(log, log.highest_remote_offset)
        if found is None:
            return
        segment, end_offset = found
        try:
            log.resources.index_jobs.open(segment)
        except IndexNotReady:
            return  # the next round knows more
        except OSError as error:
            self.tier.node.storage_failed(self.partition, error)
            return
        start = max(segment.base_offset, log.log_start_offset)
        if log.leader_epochs.epoch_for_offset(start) < 0:
            self.tier.report(f"{self.name}: records without a leader epoch cannot be copied")
            return
        wait_ms = self.tier.copy_wait_ms()
        if wait_ms > 0:
            self._is_busy = True
            self.tier.later(wait_ms, self._go_on)
            return
        self._begin(lambda: self._start_copy(log, segment.base_offset, end_offset))

    def _start_copy(self, log: Log, base_offset: int, end_offset: int) -> None:
        if self.log is not log or self.partition.leader is None:
            self.done()
            return
        found = next_to_copy(log, log.highest_remote_offset)
        if found is None or (found[0].base_offset, found[1]) != (base_offset, end_offset):
            self.done()
            return
        leader_epoch, now_ms = self.partition.leader_epoch, self.tier.now_ms()
        if self._leftovers.is_due(leader_epoch, now_ms):
            self._leftovers.look(
                leader_epoch, now_ms, lambda: self._start_copy(log, base_offset, end_offset)
            )
            return
        segment, node = found[0], self.tier.node
        described = describe_segment(
            log,
            segment,
            end_offset,
            segment_id=node.ports.random.uuid(),
            broker_id=node.node_id,
            now_ms=node.clock.wall_ms(),
        )
        try:
            objects = objects_of(log, segment, end_offset)
        except OSError as error:
            self.done(f"the segment at offset {base_offset} cannot be read: {error}")
            node.storage_failed(self.partition, error)
            return
        self.copy = CopyTask(self, log, described, objects, self._copy_ended)
        self.copy.begin()

    def _copy_ended(self, is_copied: bool, problem: str | None) -> None:
        segments = self.segments
        if is_copied and segments is not None:
            self._orphans += self._leftovers.take(segments.segments)
        self.done(problem)
