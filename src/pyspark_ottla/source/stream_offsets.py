"""The offsets of a stream: where it starts, where the next batch ends, what a batch reads.

This runs in the driver's process of one query. Offsets that Spark has stored are final: a
batch that is run again after a crash has the same start and end and reads the same records.

The first batch: Spark asks for the initial offsets again if a query crashes in its first
batch, and `latest` is another offset by then. So the first batch of a new query reads nothing
from partitions that start at `latest`. It only makes Spark store their first offsets.

Losses are detected when the end of the next batch is looked up, before Spark stores it: a
partition does not exist any more, a topic has another id, or a log ends before the stream's
offset. If losses do not fail the query, a recreated topic is read from its start, and a
truncated log from its end. A batch never reads a partition whose end is before its start.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ottla.model.ids import ZERO_UUID, TopicPartition
from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.options.offset_json import Offsets
from pyspark_ottla.options.source_options import StreamOptions
from pyspark_ottla.source.data_loss import Loss, LossReason, report_losses
from pyspark_ottla.source.log_sizes import LogSizes
from pyspark_ottla.source.offset_lookup import Metadata, Snapshot, offset_lookup, retry_missing
from pyspark_ottla.source.resolved_offsets import ResolvedOffsets, resolve
from pyspark_ottla.source.trigger_limits import TriggerDelay, limit_bytes, limit_offsets


class StreamOffsets:
    """The offsets of one query. The client is opened at the first lookup."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._source = options.source
        self._lookup = offset_lookup(options.source)
        self._sizes = LogSizes(self._lookup)
        self._initial: ResolvedOffsets | None = None
        self._has_begun = False
        self._snapshot: Snapshot | None = None
        self._is_available_now = False
        self._target: Snapshot | None = None
        self._new_starts: Offsets = {}
        self._delay = (
            None
            if options.min_offsets is None
            else TriggerDelay(options.min_offsets, options.max_trigger_delay_ms)
        )

    def close(self) -> None:
        """Close the connections."""
        self._lookup.close()

    @property
    def ends(self) -> Offsets | None:
        """The ends of the logs at the last lookup, or None before the first."""
        return None if self._snapshot is None else self._snapshot.offsets

    def stop_at_current_end(self) -> None:
        """Stop at the ends of the logs at the next lookup."""
        self._is_available_now = True

    def initial(self) -> Offsets:
        """Return where a new query starts. Every call returns the same offsets."""
        if self._initial is None:
            metadata = retry_missing(self._source, self._lookup.metadata)
            self._initial = resolve(self._lookup, metadata, self._options.start)
        return self._initial.offsets

    def next_end(self, start: Offsets, *, unlimited: bool) -> Offsets:
        """Return the end of the batch that begins at `start`, or `start` if there is none yet."""
        before = self._snapshot
        snapshot = self._latest(start)
        recreated = _recreated(start, before, snapshot)
        self._report_losses(start, before, snapshot, recreated)
        end = snapshot.offsets | self._lookup.earliest(recreated)
        starts = start | self._starts_of_new(end.keys() - start.keys())
        end = {partition: offset for partition, offset in end.items() if partition in starts}
        if not unlimited:
            if self._must_wait(starts, end) and not recreated:  # a recreation is seen only once
                return start
            if self._options.max_offsets is not None:
                end = limit_offsets(self._options.max_offsets, starts, end)
            if self._options.max_bytes is not None:
                end = limit_bytes(self._options.max_bytes, starts, end, self.bytes_per_offset())
        return end | {partition: start[partition] for partition in self._skipped() & end.keys()}

    def bytes_per_offset(self) -> Mapping[TopicPartition, float]:
        """Return the average size of an offset in each partition, as far as it is known."""
        if self._snapshot is None:
            self._snapshot = self._lookup.latest(missing_ok=True)
        return self._sizes.bytes_per_offset(self._snapshot.metadata, self._snapshot.offsets)

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return the ranges of a batch. New partitions are read from their start."""
        metadata = self._metadata(end)
        starts = start | self._starts_of_new(end.keys() - start.keys())
        skipped = self._skipped()
        wanted = {
            partition: (starts[partition], offset)
            for partition, offset in end.items()
            if partition in starts and starts[partition] < offset and partition not in skipped
        }
        lost = [
            Loss(partition, first, last, LossReason.TOPIC_DELETED)
            for partition, (first, last) in sorted(wanted.items())
            if partition not in metadata
        ]
        report_losses(lost, fail=self._source.fail_on_data_loss)
        return [
            OffsetRange(
                partition.topic, metadata[partition].topic_id, partition.partition, first, last
            )
            for partition, (first, last) in sorted(wanted.items())
            if partition in metadata
        ]

    def _skipped(self) -> frozenset[TopicPartition]:
        """Return the partitions that this batch skips, if it is the first of a new query.

        The first batch is the first one after Spark asked for the initial offsets.
        """
        if self._initial is None or self._has_begun:
            return frozenset()
        self._has_begun = True
        return self._initial.at_end

    def _latest(self, start: Offsets) -> Snapshot:
        if self._target is not None:
            return self._target
        snapshot = self._lookup.latest(missing_ok=True)
        for _ in range(self._source.attempts - 1):
            if not _looks_wrong(start, snapshot):
                break
            # A broker that has just started may not know all topics yet. Ask again before
            # reporting a loss.
            time.sleep(self._source.attempt_interval_ms / 1000)
            snapshot = self._lookup.latest(missing_ok=True)
        self._snapshot = snapshot
        if self._is_available_now:
            self._target = snapshot
        return snapshot

    def _report_losses(
        self,
        start: Offsets,
        before: Snapshot | None,
        now: Snapshot,
        recreated: set[TopicPartition],
    ) -> None:
        known_ends = before.offsets if before is not None else {}
        losses = [
            loss
            for partition, offset in sorted(start.items())
            if (loss := _loss(partition, offset, now, recreated, known_ends)) is not None
        ]
        report_losses(losses, fail=self._source.fail_on_data_loss)

    def _starts_of_new(self, new: set[TopicPartition]) -> Offsets:
        unknown = new - self._new_starts.keys()
        if unknown:
            found = self._lookup.earliest(unknown)
            losses = [
                Loss(partition, 0, offset, LossReason.LOG_START_MOVED, "the partition is new")
                for partition, offset in sorted(found.items())
                if offset > 0
            ]
            report_losses(losses, fail=self._source.fail_on_data_loss)
            self._new_starts |= found
        found = {p: self._new_starts[p] for p in new if p in self._new_starts}
        if not new:
            self._new_starts.clear()
        return found

    def _must_wait(self, starts: Offsets, end: Offsets) -> bool:
        if self._delay is None or self._is_available_now:
            return False
        unread = sum(max(0, offset - starts[partition]) for partition, offset in end.items())
        return self._delay.must_wait(unread, time.monotonic() * 1000)

    def _metadata(self, end: Offsets) -> Metadata:
        if self._snapshot is None or not end.keys() <= self._snapshot.metadata.keys():
            self._snapshot = self._lookup.latest(missing_ok=True)
        return self._snapshot.metadata


def _looks_wrong(start: Offsets, snapshot: Snapshot) -> bool:
    return any(
        partition not in snapshot.offsets or snapshot.offsets[partition] < offset
        for partition, offset in start.items()
    )


def _recreated(start: Offsets, before: Snapshot | None, now: Snapshot) -> set[TopicPartition]:
    """Return the partitions whose topic has another id than at the last lookup."""
    if before is None:
        return set()
    return {
        partition
        for partition in start
        if partition in before.metadata
        and partition in now.metadata
        and ZERO_UUID != before.metadata[partition].topic_id != now.metadata[partition].topic_id
    }


def _loss(
    partition: TopicPartition,
    offset: int,
    snapshot: Snapshot,
    recreated: set[TopicPartition],
    known_ends: Offsets,
) -> Loss | None:
    if partition not in recreated and partition in snapshot.offsets:
        end = snapshot.offsets[partition]
        return Loss(partition, end, offset, LossReason.LOG_TRUNCATED) if end < offset else None
    known_end = known_ends.get(partition, 0)
    lost_end = known_end if known_end > offset else None  # unknown: there may have been more
    if partition in recreated:
        return Loss(partition, offset, lost_end, LossReason.TOPIC_RECREATED)
    is_topic_there = any(known.topic == partition.topic for known in snapshot.metadata)
    why = LossReason.PARTITION_GONE if is_topic_there else LossReason.TOPIC_DELETED
    return Loss(partition, offset, lost_end, why)
