"""A producer of rows: fills a batch per partition and hands full ones over for delivery.

What is not flushed is not stored. Memory is bounded by buffer.memory: half of it for batches
that are being filled, half for those that are on their way.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.model.ids import TopicPartition
from pyspark_ottla.batches import OpenBatch, size_alone
from pyspark_ottla.delivery import Delivery
from pyspark_ottla.encode_loops import Columns
from pyspark_ottla.partitioning import NoSuchPartition, Partitioning, Share
from pyspark_ottla.queues import RecordTooLarge
from pyspark_ottla.rows import Rows, rows_of
from pyspark_ottla.sink_settings import SinkSettings

if TYPE_CHECKING:
    import pyarrow

SMALLEST_BATCH_BYTES = 16 * 1024
ROUTES_AGE_S = 300.0


class Producer:
    """Writes Arrow batches; `rows` and `bytes` count what is stored since `begin`."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._delivery = Delivery(settings)
        self._partitioning = Partitioning(
            self._delivery.partitions, settings.batch_bytes, ignore_keys=settings.ignore_keys
        )
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._open_bytes = 0
        self._routes_found_at = time.monotonic()

    def begin(self) -> None:
        """Start to count anew; new partitions of topics that were found long ago are noticed."""
        self._delivery.queues.rows.clear()
        self._delivery.queues.bytes = 0
        if time.monotonic() - self._routes_found_at > ROUTES_AGE_S:
            self._delivery.forget_routes()
            self._routes_found_at = time.monotonic()

    @property
    def rows(self) -> dict[str, int]:
        """Rows stored, by topic."""
        return dict(self._delivery.queues.rows)

    @property
    def bytes(self) -> int:
        """Bytes of the batches stored, as they were sent."""
        return self._delivery.queues.bytes

    def close(self) -> None:
        """Close the connections; what is not flushed is given up."""
        self._delivery.close()

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Take the rows of an Arrow batch; ValueError for rows that cannot be written."""
        if batch.num_rows == 0:
            return
        rows = rows_of(batch, self._settings.topic)
        now_ms = int(time.time() * 1000)
        for share in self._shares(rows):
            self._fill(rows.columns, share, now_ms)

    def flush(self) -> None:
        """Wait until every row is stored; raises if one cannot be."""
        self._close_open()
        self._delivery.flush()

    def _shares(self, rows: Rows) -> list[Share]:
        try:
            return list(self._partitioning.shares(rows))
        except NoSuchPartition:
            self._delivery.forget_routes()  # it may have been added since
            return list(self._partitioning.shares(rows))

    def _fill(self, columns: Columns, share: Share, now_ms: int) -> None:
        first = share.first
        while first < share.end:
            open_batch = self._open_batch(share.partition)
            following = open_batch.add(columns, share, first, now_ms)
            if following < share.end:
                if open_batch.records:
                    self._hand_over(open_batch)
                else:  # not even one row fits
                    self._send_alone(columns, share._replace(first=first, end=first + 1), now_ms)
                    following = first + 1
            first = following

    def _send_alone(self, columns: Columns, share: Share, now_ms: int) -> None:
        """Send a row that is larger than a batch."""
        size = size_alone(columns, int(share.rows[share.first]))
        if size > self._settings.max_request_bytes:
            raise RecordTooLarge(
                f"a row for {share.partition} takes {size} bytes, more than"
                f" kafka.max.request.size={self._settings.max_request_bytes} allows: raise it, and"
                " max.message.bytes of the topic if that is smaller"
            )
        large = OpenBatch(share.partition, size)
        large.add(columns, share, share.first, now_ms)
        self._hand_over(large)

    def _open_batch(self, partition: TopicPartition) -> OpenBatch:
        found = self._open.get(partition)
        if found is None:
            capacity = self._capacity(self._delivery.partitions(partition.topic))
            if self._open_bytes + capacity > self._settings.buffer_bytes // 2:
                self._close_open()
            found = self._open[partition] = OpenBatch(partition, capacity)
            self._open_bytes += capacity
        return found

    def _capacity(self, partitions: int) -> int:
        fair = self._settings.buffer_bytes // 2 // partitions
        return min(self._settings.batch_bytes, max(fair, SMALLEST_BATCH_BYTES))

    def _close_open(self) -> None:
        for open_batch in self._open.values():
            if open_batch.records:
                self._hand_over(open_batch)
        self._open.clear()
        self._open_bytes = 0

    def _hand_over(self, open_batch: OpenBatch) -> None:
        self._delivery.put(open_batch.close(self._settings.codec, self._settings.level))
