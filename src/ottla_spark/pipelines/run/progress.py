"""The progress of a query, from Spark's report of each batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

NO_BATCH = -1


@dataclass
class QueryProgress:
    """The progress of one query. Figures that Spark does not report are None.

    For a batch that Spark repeats after a stop, it reports no end offsets, so there is no lag.
    """

    sink: str
    query: StreamingQuery
    batch: int = NO_BATCH
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None
    state_rows: int | None = None
    watermark: str | None = None

    def refresh(self) -> bool:
        """Add what Spark reported since the last call; return whether there was a new batch."""
        last = self.query.lastProgress
        if last is None or (last.batchId == self.batch and last.numInputRows == 0):
            return False
        before = self.batch
        for progress in self._since(last):
            self._take(progress)
        return self.batch != before

    def _since(self, last: StreamingQueryProgress) -> list[StreamingQueryProgress]:
        if last.batchId <= self.batch + 1:
            return [last] if last.batchId > self.batch else []
        found = {progress.batchId: progress for progress in self.query.recentProgress}
        return [found[batch] for batch in sorted(found) if batch > self.batch]

    def _take(self, progress: StreamingQueryProgress) -> None:
        self.batch = progress.batchId
        self.batches += 1
        self.rows += progress.numInputRows
        self.rows_per_second = progress.processedRowsPerSecond
        self.lag = _lag(progress)
        if progress.stateOperators:
            self.state_rows = sum(state.numRowsTotal for state in progress.stateOperators)
        self.watermark = progress.eventTime.get("watermark", self.watermark)


def _lag(progress: StreamingQueryProgress) -> int | None:
    """Return the records of all topics that the query has not read yet."""
    lags = [_source_lag(source.endOffset, source.latestOffset) for source in progress.sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _source_lag(end: str | None, latest: str | None) -> int | None:
    read, there = _offsets(end), _offsets(latest)
    if read is None or there is None:
        return None
    return sum(max(0, offset - read.get(key, offset)) for key, offset in there.items())


def _offsets(text: str | None) -> dict[tuple[str, str], int] | None:
    """Return offsets by topic and partition; None if the text is not of a topic source."""
    try:
        topics = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(topics, dict):
        return None
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            return None
        found |= {
            (topic, partition): offset
            for partition, offset in partitions.items()
            if isinstance(offset, int)
        }
    return found
