"""The producer of the sink: fills a batch per partition and gives full batches to the sender.

Rows are stored for sure only after `flush`. buffer.memory limits the memory: half of it is for
batches that are being filled, half for batches that are sent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.client.cluster import Client
from ottla.model.ids import TopicPartition
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.encode_loops import Columns
from pyspark_ottla.sink.partitioner import NoSuchPartition, Partitioner, PartitionRows
from pyspark_ottla.sink.record_batch import OpenBatch, size_alone
from pyspark_ottla.sink.rows import Rows, rows_of
from pyspark_ottla.sink.send_queues import RecordTooLarge
from pyspark_ottla.sink.sender import Sender
from pyspark_ottla.sink.task_transaction import TaskTransaction

if TYPE_CHECKING:
    import pyarrow

SMALLEST_BATCH_BYTES = 16 * 1024
ROUTES_AGE_S = 300.0


class Producer:
    """Writes Arrow batches. `rows` and `bytes` count what was stored since `begin`."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._sender = Sender(settings)
        self._partitioner = Partitioner(
            self._sender.partitions, settings.batch_bytes, ignore_keys=settings.ignore_keys
        )
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._open_bytes = 0
        self._routes_found_at = time.monotonic()

    def begin(self, transactional_id: str | None) -> None:
        """Reset the counters. Look up topics again if the last lookup was long ago.

        With a transactional id, everything until the next `begin` is one transaction.
        """
        if transactional_id is not None:
            self._sender.begin_transaction(transactional_id)
        self._sender.queues.rows.clear()
        self._sender.queues.bytes = 0
        if time.monotonic() - self._routes_found_at > ROUTES_AGE_S:
            self._sender.forget_routes()
            self._routes_found_at = time.monotonic()

    @property
    def client(self) -> Client:
        """The client of the cluster that the producer writes to."""
        return self._sender.client

    @property
    def rows(self) -> dict[str, int]:
        """The number of stored rows, by topic."""
        return dict(self._sender.queues.rows)

    @property
    def bytes(self) -> int:
        """The size of the stored batches, as they were sent."""
        return self._sender.queues.bytes

    @property
    def transaction(self) -> TaskTransaction | None:
        """The open transaction. None if nothing was written, or without exactly once."""
        return self._sender.transaction

    def abort(self) -> None:
        """Abort the open transaction, if there is one."""
        self._sender.abort_transaction()

    def close(self) -> None:
        """Close the connections. Rows that are not flushed may be lost."""
        self._sender.close()

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Add the rows of an Arrow batch. Raise ValueError for rows that cannot be written."""
        if batch.num_rows == 0:
            return
        rows = rows_of(batch, self._settings.topic)
        now_ms = int(time.time() * 1000)
        for part in self._split(rows):
            self._fill(rows.columns, part, now_ms)

    def flush(self) -> None:
        """Wait until every row is stored. Raise an error if a row cannot be stored."""
        self._close_open()
        self._sender.flush()

    def _split(self, rows: Rows) -> list[PartitionRows]:
        try:
            return list(self._partitioner.split(rows))
        except NoSuchPartition:
            self._sender.forget_routes()  # the partition may be new
            return list(self._partitioner.split(rows))

    def _fill(self, columns: Columns, part: PartitionRows, now_ms: int) -> None:
        first = part.first
        while first < part.end:
            open_batch = self._open_batch(part.partition)
            next_row = open_batch.add(columns, part, first, now_ms)
            if next_row < part.end:
                if open_batch.records:
                    self._send(open_batch)
                else:  # a single row does not fit
                    self._send_alone(columns, part._replace(first=first, end=first + 1), now_ms)
                    next_row = first + 1
            first = next_row

    def _send_alone(self, columns: Columns, part: PartitionRows, now_ms: int) -> None:
        """Send a row that is larger than a usual batch."""
        size = size_alone(columns, int(part.rows[part.first]))
        if size > self._settings.max_request_bytes:
            raise RecordTooLarge(
                f"a row for {part.partition} takes {size} bytes, more than"
                f" kafka.max.request.size={self._settings.max_request_bytes} allows: raise this"
                " option, and max.message.bytes of the topic if that is smaller"
            )
        large = OpenBatch(part.partition, size)
        large.add(columns, part, part.first, now_ms)
        self._send(large)

    def _open_batch(self, partition: TopicPartition) -> OpenBatch:
        found = self._open.get(partition)
        if found is None:
            capacity = self._capacity(self._sender.partitions(partition.topic))
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
                self._send(open_batch)
        self._open.clear()
        self._open_bytes = 0

    def _send(self, open_batch: OpenBatch) -> None:
        settings = self._settings
        self._sender.send(
            open_batch.close(settings.codec, settings.level, transactional=settings.exactly_once)
        )
