"""The queues of batches that are not stored yet: their order and sequences, and what to do after
each result.

There is no I/O and no clock here. The queue of a partition is sending, until a batch fails. Then
it waits until none of its batches is in flight, pauses, and sends everything again from the first
batch that is not stored. Sequences make sure that a batch that is sent twice is stored once, and
that no batch is stored before the one ahead of it (KIP-98). A producer that is not idempotent has
one batch of a partition in flight at a time, which keeps the order too.

If a broker has lost the state of the producer, all queues wait until nothing is in flight. Then
every batch gets a sequence of a new producer id (KIP-360). A transaction cannot do that: it fails,
and Spark runs the task again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from ottla.client.errors import RETRIABLE, ClientError, Refused
from ottla.client.producer.producer import SEQUENCE_MASK, STALE_ROUTE, TOO_LARGE
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.produce_request import BatchResult
from pyspark_ottla.sink.record_batch import Batch

STORED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
STATE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
TEMPORARY = RETRIABLE | STALE_ROUTE | {ErrorCode.CORRUPT_MESSAGE}
MAX_RENEWALS = 5
_MAX_DOUBLINGS = 16


class RecordTooLarge(ClientError):
    """A record is larger than the broker or the settings allow."""


class PartitionQueue:
    """The batches of one partition that are not stored yet, in order."""

    __slots__ = (
        "batches",
        "failed",
        "in_flight",
        "partition",
        "resume_at",
        "sequence",
        "too_large",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.in_flight = 0  # how many batches, from the first on, are sent and have no result yet
        self.failed = False
        self.resume_at = 0.0
        self.sequence = 0
        self.too_large: list[Batch] = []


class SendQueues:
    """All queues of a producer.

    `stale` has the topics whose leaders must be looked up again. `must_renew` is true if a new
    producer id is needed before anything else is sent.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self.rows: Counter[str] = Counter()
        self.bytes = 0
        self.queued_bytes = 0
        self.in_flight = 0
        self.stale: set[str] = set()
        self.must_renew = settings.idempotent
        self._settings = settings
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._waiting: dict[PartitionQueue, None] = {}  # queues with batches that are not in flight
        self._producer = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self._renewals = 0

    def add(self, batch: Batch) -> None:
        """Append a batch to the queue of its partition."""
        queue = self._queues.get(batch.partition)
        if queue is None:
            queue = self._queues[batch.partition] = PartitionQueue(batch.partition)
        self._set_sequence(queue, batch)
        queue.batches.append(batch)
        self._waiting[queue] = None
        self.queued_bytes += batch.size

    def renew(self, producer_id: int, producer_epoch: int) -> None:
        """Give every batch a sequence of this producer, from 0. Nothing may be in flight."""
        assert self.in_flight == 0
        self._producer = (producer_id, producer_epoch)
        self.must_renew = False
        for queue in self._queues.values():
            queue.sequence = 0
            for batch in queue.batches:
                self._set_sequence(queue, batch)

    def sendable(self, now: float) -> list[PartitionQueue]:
        """Return the queues with a batch that can be sent now."""
        if self.must_renew:
            return []
        return [q for q in self._waiting if not q.failed and q.resume_at <= now]

    def resume_at(self, now: float) -> float:
        """Return the time when the next paused queue may send, or `now` if none is paused."""
        pausing = [q.resume_at for q in self._waiting if not q.failed and q.resume_at > now]
        return min(pausing, default=now)

    def pick(self, queues: Iterable[PartitionQueue]) -> list[Batch]:
        """Return the next batch of each queue that may send, up to the size of a request."""
        limit = self._settings.max_in_flight_per_partition
        picked: list[Batch] = []
        size = 0
        for queue in queues:
            if queue.failed or queue.in_flight >= min(len(queue.batches), limit):
                continue
            batch = queue.batches[queue.in_flight]
            size += batch.size
            if picked and size > self._settings.max_request_bytes:
                break
            picked.append(batch)
        return picked

    def mark_sent(self, batches: Iterable[Batch]) -> None:
        """Mark batches as in flight."""
        for batch in batches:
            queue = self._queues[batch.partition]
            queue.in_flight += 1
            self.in_flight += 1
            if queue.in_flight == len(queue.batches):
                del self._waiting[queue]

    def handle_result(self, batch: Batch, result: BatchResult, now: float) -> None:
        """Handle the result of a batch in flight. Raise an error if it cannot be retried."""
        queue = self._queues[batch.partition]
        queue.in_flight -= 1
        self.in_flight -= 1
        if result.code in STORED:
            queue.batches.remove(batch)
            self.queued_bytes -= batch.size
            self.bytes += batch.size
            self.rows[batch.partition.topic] += batch.records
            self._renewals = 0
        else:
            queue.failed = True
            self._handle_error(queue, batch, result, now)
        if queue.failed and queue.in_flight == 0:
            self._resume(queue)

    def postpone(self, queue: PartitionQueue, result: BatchResult, now: float) -> None:
        """Pause a queue, longer each time. Raise an error if its first batch is too old."""
        settings, batch = self._settings, queue.batches[0]
        self.stale.add(queue.partition.topic)
        batch.attempts += 1
        if batch.give_up_at is None:
            batch.give_up_at = now + settings.delivery_timeout_ms / 1000
        if now >= batch.give_up_at or batch.attempts > settings.retries:
            raise _error(batch, result)
        pause_ms = settings.retry_backoff_ms * 2 ** min(batch.attempts - 1, _MAX_DOUBLINGS)
        queue.resume_at = now + min(pause_ms, settings.retry_backoff_max_ms) / 1000

    def _set_sequence(self, queue: PartitionQueue, batch: Batch) -> None:
        if not self._settings.idempotent:
            batch.set_producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
            return
        batch.set_producer(*self._producer, queue.sequence)
        queue.sequence = (queue.sequence + batch.records) & SEQUENCE_MASK

    def _handle_error(
        self, queue: PartitionQueue, batch: Batch, result: BatchResult, now: float
    ) -> None:
        """Decide what to do after an error: retry, split the batch, or raise the error."""
        is_first = queue.batches[0] is batch
        if result.code in TOO_LARGE:
            _check_can_be_split(batch)
            queue.too_large.append(batch)
        elif result.code in STATE_LOST and self._settings.idempotent:
            if is_first:  # the others fail only because the one ahead of them is missing
                self._handle_lost_state(batch, result)
        elif result.code in TEMPORARY:
            if is_first:
                self.postpone(queue, result, now)
        else:
            raise _error(batch, result)

    def _handle_lost_state(self, batch: Batch, result: BatchResult) -> None:
        """Ask for a new producer id. A transaction has one only, so it fails."""
        if self._settings.exactly_once:
            raise _error(batch, result)
        self.must_renew = True
        self._renewals += 1
        if self._renewals > MAX_RENEWALS:
            raise _error(batch, result)

    def _resume(self, queue: PartitionQueue) -> None:
        queue.failed = False
        for batch in queue.too_large:
            self._split(queue, batch)
        queue.too_large.clear()
        if queue.batches:
            self._waiting[queue] = None

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        index = queue.batches.index(batch)
        sequence = batch.sequence
        halves = batch.split()
        for half in halves:
            half.set_producer(*self._producer, sequence)
            if sequence != NO_SEQUENCE:
                sequence = (sequence + half.records) & SEQUENCE_MASK
        del queue.batches[index]
        for half in reversed(halves):
            queue.batches.insert(index, half)
        self.queued_bytes += sum(half.size for half in halves) - batch.size


def _check_can_be_split(batch: Batch) -> None:
    if batch.records == 1:
        topic = batch.partition.topic
        raise RecordTooLarge(
            f"{batch.partition}: a record of {batch.size} bytes is larger than the broker accepts:"
            f" raise max.message.bytes of the topic (`ottla topics alter {topic} --config"
            f" max.message.bytes={batch.size}`), or make the record smaller"
        )


def _error(batch: Batch, result: BatchResult) -> Refused:
    tries = f" after {batch.attempts} attempts" if batch.attempts > 1 else ""
    return Refused(result.code, f"{batch.partition} was not written{tries}", result.message)
