"""How much a trigger of a stream takes: maxOffsetsPerTrigger, minOffsetsPerTrigger.

The maximum is shared among the partitions in proportion to what waits in each; none that
has something waiting gets nothing, so a batch may exceed the maximum by less than one
record for each partition. The minimum delays a batch until enough has come in, at most
`maxTriggerDelay` since the last one. Both as in Spark's own source.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.model.ids import TopicPartition
from pyspark_ottla.offset_json import Offsets


def limit_offsets(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> Offsets:
    """The offsets to read up to so that about `limit` are read; `start` has all of `end`."""
    waiting = {
        partition: size
        for partition, offset in end.items()
        if (size := offset - start[partition]) > 0
    }
    total = sum(waiting.values())
    if total <= limit:
        return dict(end)
    limited = dict(end)
    for partition, size in waiting.items():
        limited[partition] = start[partition] + max(1, limit * size // total)
    return limited


class TriggerDelay:
    """Holds batches back until `min_offsets` wait or the last one is `max_delay_ms` ago.

    The first batch of a run is never held back.
    """

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: float | None = None

    def holds_back(self, waiting: int, now_ms: float) -> bool:
        """Whether a batch with this many offsets has to wait."""
        overdue = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if not overdue and waiting < self._min_offsets:
            return True
        self._last_ms = now_ms
        return False
