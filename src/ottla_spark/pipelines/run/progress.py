"""The progress of a query, from Spark's report of each batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla_spark.stream_metrics import source_lag, source_metrics

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
    rows_per_second: float | None = None
    lag: int | None = None
    metrics: list[dict[str, str]] = field(default_factory=list)
    state_rows: int | None = None
    watermark: str | None = None

    def refresh(self) -> bool:
        """Add what Spark reported since the last call; return whether there was a new batch."""
        last = self.query.lastProgress
        if last is None:
            return False
        newest = last.batchId if _ran(last) else last.batchId - 1
        if newest <= self.batch:
            return False
        before = self.batch
        for progress in self._since(last):
            self._take(progress)
        return self.batch != before

    def _since(self, last: StreamingQueryProgress) -> list[StreamingQueryProgress]:
        if _ran(last) and last.batchId == self.batch + 1:
            return [last]
        found = {each.batchId: each for each in self.query.recentProgress if _ran(each)}
        return [found[batch] for batch in sorted(found) if batch > self.batch]

    def _take(self, progress: StreamingQueryProgress) -> None:
        self.batch = progress.batchId
        self.batches += 1
        self.rows += progress.numInputRows
        self.rows_per_second = progress.processedRowsPerSecond
        self.lag = _lag(progress)
        self.metrics = source_metrics(progress)
        if progress.stateOperators:
            self.state_rows = sum(state.numRowsTotal for state in progress.stateOperators)
        self.watermark = progress.eventTime.get("watermark", self.watermark)


def _ran(progress: StreamingQueryProgress) -> bool:
    """Return whether the batch ran. While there is no data, Spark reports the next one as well."""
    return bool(progress.numInputRows or "addBatch" in progress.durationMs)


def _lag(progress: StreamingQueryProgress) -> int | None:
    """Return the records of all topics that the query has not read yet."""
    lags = [source_lag(source) for source in progress.sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None
