"""How much a trigger reads: maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger.

A maximum is divided among the partitions in proportion to their unread offsets. Every
partition with unread offsets gets at least one, so a batch may exceed the maximum by less than
one record for each partition. The minimum delays a batch until that many offsets are unread,
or until `maxTriggerDelay` has passed since the last batch. Both work as in Spark's own source.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.model.ids import TopicPartition
from pyspark_ottla.options.offset_json import Offsets


def limit_offsets(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> Offsets:
    """Return new ends so that about `limit` offsets are read. `start` has all keys of `end`."""
    unread = {
        partition: size
        for partition, offset in end.items()
        if (size := offset - start[partition]) > 0
    }
    total = sum(unread.values())
    if total <= limit:
        return dict(end)
    limited = dict(end)
    for partition, size in unread.items():
        limited[partition] = start[partition] + max(1, limit * size // total)
    return limited


def limit_bytes(
    limit: int,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    bytes_per_offset: Mapping[TopicPartition, float],
) -> Offsets:
    """Return new ends so that about `limit` bytes are read, by the average sizes of records.

    Partitions whose sizes are not known keep their ends, because nothing can be said of them.
    """
    unread = {
        partition: size
        for partition, offset in end.items()
        if (size := offset - start[partition]) > 0 and partition in bytes_per_offset
    }
    total = sum(size * bytes_per_offset[partition] for partition, size in unread.items())
    if total <= limit:
        return dict(end)
    limited = dict(end)
    for partition, size in unread.items():
        limited[partition] = start[partition] + max(1, int(limit * size / total))
    return limited


class TriggerDelay:
    """Delays a batch until `min_offsets` are unread or `max_delay_ms` have passed.

    The first batch of a run is never delayed.
    """

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: float | None = None

    def must_wait(self, unread: int, now_ms: float) -> bool:
        """Return true if a batch with this many unread offsets has to wait."""
        overdue = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if not overdue and unread < self._min_offsets:
            return True
        self._last_ms = now_ms
        return False
