"""Where a stream stands: its first offsets, how far the next batch reaches, what it reads.

Lives in the driver's process of one query. Offsets that Spark keeps are final: a batch that
is run again after a crash is planned from the same two sets of offsets and reads the same.

The first batch. Spark asks for the initial offsets again when a query crashes in its first
batch, and `latest` is then somewhere else. So the first batch of a new query reads nothing
from partitions that start at their end; it only makes their first offsets final.

Losses are noticed when the next batch is looked for, before Spark writes it down: a
partition that is gone, a topic with another id, a log that ends before where we are. When
losses do not fail the query, a recreated topic is read from its start, a log that was cut
from where it ends now. A batch never reads a partition whose end is before its start.
"""

from __future__ import annotations

import time

from ottla.model.ids import ZERO_UUID, TopicPartition
from pyspark_ottla.admission import TriggerDelay, limit_offsets
from pyspark_ottla.batch import offset_reader, patiently
from pyspark_ottla.loss import Loss, Why, report_losses
from pyspark_ottla.offset_json import Offsets
from pyspark_ottla.offset_reader import Places, View
from pyspark_ottla.options import StreamOptions
from pyspark_ottla.ranges import OffsetRange
from pyspark_ottla.resolving import Resolved, resolve


class StreamPositions:
    """The offsets of one query; opens its client when it is first asked."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._source = options.source
        self._reader = offset_reader(options.source)
        self._initial: Resolved | None = None
        self._has_begun = False
        self._view: View | None = None
        self._is_available_now = False
        self._target: View | None = None
        self._new_starts: Offsets = {}
        self._delay = (
            None
            if options.min_offsets is None
            else TriggerDelay(options.min_offsets, options.max_trigger_delay_ms)
        )

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    @property
    def ends(self) -> Offsets | None:
        """The ends of the logs when they were last looked at."""
        return None if self._view is None else self._view.offsets

    def stop_at_present(self) -> None:
        """Read up to what is there at the next look, and nothing that comes later."""
        self._is_available_now = True

    def initial(self) -> Offsets:
        """Where a new query starts; the same however often it is asked."""
        if self._initial is None:
            places = patiently(self._source, self._reader.places)
            self._initial = resolve(self._reader, places, self._options.start)
        return self._initial.offsets

    def next_end(self, start: Offsets, *, unlimited: bool) -> Offsets:
        """How far the batch that begins at `start` reaches; `start` when there is none yet."""
        before = self._view
        view = self._look(start)
        recreated = _recreated(start, before, view)
        self._report_losses(start, before, view, recreated)
        end = view.offsets | self._reader.earliest(recreated)
        starts = start | self._starts_of_new(end.keys() - start.keys())
        end = {partition: offset for partition, offset in end.items() if partition in starts}
        if not unlimited:
            if self._holds_back(starts, end) and not recreated:  # which is known only now
                return start
            if self._options.max_offsets is not None:
                end = limit_offsets(self._options.max_offsets, starts, end)
        return end | {partition: start[partition] for partition in self._held() & end.keys()}

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What a batch between these offsets reads, partitions that are new from their start."""
        places = self._places(end)
        starts = start | self._starts_of_new(end.keys() - start.keys())
        held = self._held()
        wanted = {
            partition: (starts[partition], offset)
            for partition, offset in end.items()
            if partition in starts and starts[partition] < offset and partition not in held
        }
        gone = [
            Loss(partition, first, last, Why.TOPIC_DELETED)
            for partition, (first, last) in sorted(wanted.items())
            if partition not in places
        ]
        report_losses(gone, fail=self._source.fail_on_data_loss)
        return [
            OffsetRange(
                partition.topic, places[partition].topic_id, partition.partition, first, last
            )
            for partition, (first, last) in sorted(wanted.items())
            if partition in places
        ]

    def _held(self) -> frozenset[TopicPartition]:
        """The partitions that this batch leaves alone, when it is the first of a new query.

        That is the first that is looked for, or planned, after the initial offsets were asked.
        """
        if self._initial is None or self._has_begun:
            return frozenset()
        self._has_begun = True
        return self._initial.at_end

    def _look(self, start: Offsets) -> View:
        if self._target is not None:
            return self._target
        view = self._reader.latest(missing_ok=True)
        for _ in range(self._source.attempts - 1):
            if not _looks_wrong(start, view):
                break
            # A broker that has just started may not know everything yet: ask again before
            # anything is called lost.
            time.sleep(self._source.attempt_interval_ms / 1000)
            view = self._reader.latest(missing_ok=True)
        self._view = view
        if self._is_available_now:
            self._target = view
        return view

    def _report_losses(
        self, start: Offsets, before: View | None, view: View, recreated: set[TopicPartition]
    ) -> None:
        known_ends = before.offsets if before is not None else {}
        losses = [
            loss
            for partition, offset in sorted(start.items())
            if (loss := _loss(partition, offset, view, recreated, known_ends)) is not None
        ]
        report_losses(losses, fail=self._source.fail_on_data_loss)

    def _starts_of_new(self, new: set[TopicPartition]) -> Offsets:
        unknown = new - self._new_starts.keys()
        if unknown:
            found = self._reader.earliest(unknown)
            losses = [
                Loss(partition, 0, offset, Why.LOG_START_MOVED, "the partition is new")
                for partition, offset in sorted(found.items())
                if offset > 0
            ]
            report_losses(losses, fail=self._source.fail_on_data_loss)
            self._new_starts |= found
        found = {p: self._new_starts[p] for p in new if p in self._new_starts}
        if not new:
            self._new_starts.clear()
        return found

    def _holds_back(self, starts: Offsets, end: Offsets) -> bool:
        if self._delay is None or self._is_available_now:
            return False
        waiting = sum(max(0, offset - starts[partition]) for partition, offset in end.items())
        return self._delay.holds_back(waiting, time.monotonic() * 1000)

    def _places(self, end: Offsets) -> Places:
        if self._view is None or not end.keys() <= self._view.places.keys():
            self._view = self._reader.latest(missing_ok=True)
        return self._view.places


def _looks_wrong(start: Offsets, view: View) -> bool:
    return any(
        partition not in view.offsets or view.offsets[partition] < offset
        for partition, offset in start.items()
    )


def _recreated(start: Offsets, before: View | None, view: View) -> set[TopicPartition]:
    """The partitions whose topic has another id than when it was last looked at."""
    if before is None:
        return set()
    return {
        partition
        for partition in start
        if partition in before.places
        and partition in view.places
        and ZERO_UUID != before.places[partition].topic_id != view.places[partition].topic_id
    }


def _loss(
    partition: TopicPartition,
    offset: int,
    view: View,
    recreated: set[TopicPartition],
    known_ends: Offsets,
) -> Loss | None:
    if partition not in recreated and partition in view.offsets:
        end = view.offsets[partition]
        return Loss(partition, end, offset, Why.LOG_TRUNCATED) if end < offset else None
    known_end = known_ends.get(partition, 0)
    lost_end = known_end if known_end > offset else None  # else there may have been some, unseen
    if partition in recreated:
        return Loss(partition, offset, lost_end, Why.TOPIC_RECREATED)
    is_topic_there = any(known.topic == partition.topic for known in view.places)
    why = Why.PARTITION_GONE if is_topic_there else Why.TOPIC_DELETED
    return Loss(partition, offset, lost_end, why)
