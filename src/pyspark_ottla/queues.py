"""The batches that are not stored yet: their order, their numbers, and what an answer means.

No I/O and no clock here. A partition's queue goes: sending -> failed (an answer was an error)
-> sending again, after a pause, once none of its batches is under way; everything from the
first batch that is not stored is then sent again. Batches carry numbers, so one that is sent
again is stored once, and none is stored before the one ahead of it (KIP-98). Without numbers
(not idempotent) a partition has one batch under way at a time, for the same order.

A broker that has forgotten our numbers makes all queues wait until nothing is under way at
all; then every batch gets a number of a new producer (KIP-360).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from ottla.client.errors import RETRIABLE, ClientError, Refused
from ottla.client.producer.producer import SEQUENCE_MASK, STALE_ROUTE, TOO_LARGE
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from pyspark_ottla.batches import Batch
from pyspark_ottla.produce_request import Answer
from pyspark_ottla.sink_settings import SinkSettings

STORED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
FORGOTTEN = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
PASSING = RETRIABLE | STALE_ROUTE | {ErrorCode.CORRUPT_MESSAGE}
MAX_RENEWALS = 5
_MAX_DOUBLINGS = 16


class RecordTooLarge(ClientError):
    """One record is larger than the broker or the settings allow."""


class Queue:
    """The batches of one partition that are not stored yet, in order."""

    __slots__ = ("batches", "failed", "partition", "resume_at", "sent", "sequence", "too_large")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.sent = 0  # how many of them, from the first on, are under way
        self.failed = False
        self.resume_at = 0.0
        self.sequence = 0
        self.too_large: list[Batch] = []


class Queues:
    """All queues of a producer; `stale` has the topics whose leaders should be looked up again.

    `must_renew` says that a new producer id is needed before anything else is sent.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self.rows: Counter[str] = Counter()
        self.bytes = 0
        self.kept_bytes = 0
        self.under_way = 0
        self.stale: set[str] = set()
        self.must_renew = settings.idempotent
        self._settings = settings
        self._queues: dict[TopicPartition, Queue] = {}
        self._waiting: dict[Queue, None] = {}  # those with batches that are not under way
        self._producer = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self._renewals = 0

    def add(self, batch: Batch) -> None:
        """Put a batch at the end of its partition's queue."""
        queue = self._queues.get(batch.partition)
        if queue is None:
            queue = self._queues[batch.partition] = Queue(batch.partition)
        self._number(queue, batch)
        queue.batches.append(batch)
        self._waiting[queue] = None
        self.kept_bytes += batch.size

    def renew(self, producer_id: int, producer_epoch: int) -> None:
        """Number every batch from zero, for this producer; nothing may be under way."""
        assert self.under_way == 0
        self._producer = (producer_id, producer_epoch)
        self.must_renew = False
        for queue in self._queues.values():
            queue.sequence = 0
            for batch in queue.batches:
                self._number(queue, batch)

    def sendable(self, now: float) -> list[Queue]:
        """The queues with a batch that could be sent now."""
        if self.must_renew:
            return []
        return [q for q in self._waiting if not q.failed and q.resume_at <= now]

    def resume_at(self, now: float) -> float:
        """When a queue that pauses goes on; `now` if none pauses."""
        pausing = [q.resume_at for q in self._waiting if not q.failed and q.resume_at > now]
        return min(pausing, default=now)

    def pick(self, queues: Iterable[Queue]) -> list[Batch]:
        """The next batch of each queue that may send one, up to the size of a request."""
        picked: list[Batch] = []
        size = 0
        for queue in queues:
            if queue.failed or queue.sent >= min(len(queue.batches), self._settings.in_row):
                continue
            batch = queue.batches[queue.sent]
            size += batch.size
            if picked and size > self._settings.max_request_bytes:
                break
            picked.append(batch)
        return picked

    def mark_sent(self, batches: Iterable[Batch]) -> None:
        """Picked batches are under way now."""
        for batch in batches:
            queue = self._queues[batch.partition]
            queue.sent += 1
            self.under_way += 1
            if queue.sent == len(queue.batches):
                del self._waiting[queue]

    def settle(self, batch: Batch, answer: Answer, now: float) -> None:
        """A batch that was under way is so no more; raises when that is the end."""
        queue = self._queues[batch.partition]
        queue.sent -= 1
        self.under_way -= 1
        if answer.code in STORED:
            queue.batches.remove(batch)
            self.kept_bytes -= batch.size
            self.bytes += batch.size
            self.rows[batch.partition.topic] += batch.records
            self._renewals = 0
        else:
            queue.failed = True
            self._judge(queue, batch, answer, now)
        if queue.failed and queue.sent == 0:
            self._start_again(queue)

    def postpone(self, queue: Queue, answer: Answer, now: float) -> None:
        """Let a queue pause, longer each time; raises when its first batch has waited too long."""
        settings, batch = self._settings, queue.batches[0]
        self.stale.add(queue.partition.topic)
        batch.attempts += 1
        if batch.give_up_at is None:
            batch.give_up_at = now + settings.delivery_timeout_ms / 1000
        if now >= batch.give_up_at or batch.attempts > settings.retries:
            raise _refusal(batch, answer)
        pause_ms = settings.retry_backoff_ms * 2 ** min(batch.attempts - 1, _MAX_DOUBLINGS)
        queue.resume_at = now + min(pause_ms, settings.retry_backoff_max_ms) / 1000

    def _number(self, queue: Queue, batch: Batch) -> None:
        if not self._settings.idempotent:
            batch.number(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
            return
        batch.number(*self._producer, queue.sequence)
        queue.sequence = (queue.sequence + batch.records) & SEQUENCE_MASK

    def _judge(self, queue: Queue, batch: Batch, answer: Answer, now: float) -> None:
        """Decide what an error means for its batch: again, in parts, or the end."""
        is_first = queue.batches[0] is batch
        if answer.code in TOO_LARGE:
            _check_can_be_cut(batch)
            queue.too_large.append(batch)
        elif answer.code in FORGOTTEN and self._settings.idempotent:
            if is_first:  # others miss the one ahead of them, which is no news
                self._ask_for_renewal(batch, answer)
        elif answer.code in PASSING:
            if is_first:
                self.postpone(queue, answer, now)
        else:
            raise _refusal(batch, answer)

    def _ask_for_renewal(self, batch: Batch, answer: Answer) -> None:
        self.must_renew = True
        self._renewals += 1
        if self._renewals > MAX_RENEWALS:
            raise _refusal(batch, answer)

    def _start_again(self, queue: Queue) -> None:
        queue.failed = False
        for batch in queue.too_large:
            self._cut(queue, batch)
        queue.too_large.clear()
        if queue.batches:
            self._waiting[queue] = None

    def _cut(self, queue: Queue, batch: Batch) -> None:
        place = queue.batches.index(batch)
        sequence = batch.sequence
        halves = batch.halves()
        for half in halves:
            half.number(*self._producer, sequence)
            if sequence != NO_SEQUENCE:
                sequence = (sequence + half.records) & SEQUENCE_MASK
        del queue.batches[place]
        for half in reversed(halves):
            queue.batches.insert(place, half)
        self.kept_bytes += sum(half.size for half in halves) - batch.size


def _check_can_be_cut(batch: Batch) -> None:
    if batch.records == 1:
        topic = batch.partition.topic
        raise RecordTooLarge(
            f"{batch.partition}: a record of {batch.size} bytes is larger than the broker takes:"
            f" raise max.message.bytes of the topic (`ottla topics alter {topic} --config"
            f" max.message.bytes={batch.size}`), or send less in a record"
        )


def _refusal(batch: Batch, answer: Answer) -> Refused:
    tries = f" after {batch.attempts} attempts" if batch.attempts > 1 else ""
    return Refused(answer.code, f"{batch.partition} was not written{tries}", answer.message)
