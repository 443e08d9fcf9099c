"""Appends to one partition that wait: for a helper process, a new segment, or behind one that does.

Batches whose records must be looked at go to a helper process (`ottla.records.validation`). A batch
that needs a new segment waits for the next wake-up if this one has begun some already.
Meanwhile the partition keeps its order: whatever is appended to it later waits as well, so that
offsets are given in the order of arrival and sequences of idempotent producers stay right.
Several batches may be with the helper at the same time, and come back in any order.

    arrived    -> validating          its records must be looked at
    arrived    -> ready               they need not be, but batches before it wait, or it needs a
                                      new segment
    validating -> ready               the helper process has answered, or has failed
    ready      -> appended, refused   when it is the first, and there is time; then the next one
    ready      -> validating          the topic's settings have changed meanwhile
    any        -> refused             this broker does not lead any more

An append that waits has a copy of its batch: the buffers of requests are used again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.log.append_rules import (
    UNCHECKED,
    WELL_FORMED,
    WITH_KEYS,
    AppendLater,
    NeedsRoll,
    NeedsValidation,
)
from ottla.log.state.verifications import NOT_TRANSACTIONAL
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import Ports, TaskFailed
from ottla.replication.partition_leader import WRITTEN, AppendWaiter, PartitionLeader

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.replication.partition import Partition, QueuedWrite
    from ottla.replication.timers import Timers

PARKED_BYTES: Final = 8 * 1024 * 1024
"""While more than this waits, a connection that has added to it sends no further request."""
MAX_DELAYED_BYTES: Final = 128 * 1024 * 1024
"""A batch is refused if more than this would wait; one alone may be as large as it likes."""

_PAUSE_MS: Final = 0.05

SEQUENCE_ERRORS: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
)
"""Answers that rely on a batch that is not written yet, and are wrong if that write fails."""


class Broker(Protocol):
    """What delayed appends need of their broker."""

    appended: list[QueuedWrite]
    delayed_bytes: int
    monotonic_ms: float
    ports: Ports
    timers: Timers
    wall_ms: int

    def has_time(self) -> bool:
        """Return False if what waits is to be appended in the next wake-up."""

    def storage_failed(self, partition: Partition, problem: OSError) -> tuple[ErrorCode, str]:
        """Handle an I/O error of a partition's log; return what to tell the client."""


class DelayedAppend:
    """One batch that waits, and the waiter that gets its result."""

    __slots__ = (
        "acks_all",
        "batch",
        "checked",
        "guard",
        "is_ready",
        "place",
        "position",
        "refusal",
        "size",
        "start",
        "waiter",
    )

    def __init__(
        self,
        waiter: AppendWaiter,
        place: Any = None,
        position: int = 0,
        *,
        acks_all: bool = True,
        checked: int = UNCHECKED,
        guard: int = NOT_TRANSACTIONAL,
    ) -> None:
        self.waiter = waiter
        self.place = place
        self.position = position
        self.acks_all = acks_all
        self.checked = checked
        """What is known about the records (see `append_rules`)."""
        self.guard = guard
        """Whether it may be part of a transaction (see `log.state.verifications`)."""
        self.is_ready = True
        self.refusal: ApiError | None = None
        self.size = 0
        """What it counts in the broker's `delayed_bytes`."""
        self.batch = bytearray()
        self.start = 0
        """Where the batch begins in `batch`; it goes to the end."""

    def refuse(self, error: ApiError) -> None:
        self.waiter.appended(self.place, self.position, error)

    def check(
        self, log: Log, buffer: bytearray, view: memoryview, start: int, end: int, now_ms: int
    ) -> None:
        """Check the batch before its turn comes; raise ApiError or NeedsValidation."""
        self.checked = log.check_append(buffer, view, start, end, now_ms, self.checked)

    def append_to(self, log: Log, leader_epoch: int, now_ms: int) -> int:
        """Queue the batch in the log; return its base offset."""
        batch = self.batch
        return log.append_as_leader(
            batch, memoryview(batch), self.start, len(batch), leader_epoch, now_ms,
            self.checked, self.guard,
        )  # fmt: skip


class DelayedCoordinatorAppend(DelayedAppend):
    """A marker, or offsets of a transaction, behind appends that wait."""

    __slots__ = ("transaction_version",)

    def __init__(self, waiter: AppendWaiter, guard: int, transaction_version: int) -> None:
        super().__init__(waiter, guard=guard)
        self.transaction_version = transaction_version

    def check(
        self, log: Log, buffer: bytearray, view: memoryview, start: int, end: int, now_ms: int
    ) -> None:
        """Check nothing: a coordinator of this cluster has built the batch."""

    def append_to(self, log: Log, leader_epoch: int, now_ms: int) -> int:
        """Queue the batch in the log; return its base offset."""
        return log.append_from_coordinator(
            self.batch, leader_epoch, now_ms,
            guard=self.guard, transaction_version=self.transaction_version,
        )  # fmt: skip


class DelayedAppends:
    """The appends to one partition that wait, in their order; never empty for long."""

    __slots__ = ("_broker", "_is_scheduled", "_leader", "_queue")

    def __init__(self, leader: PartitionLeader, broker: Broker) -> None:
        self._leader = leader
        self._broker = broker
        self._queue: deque[DelayedAppend] = deque()
        self._is_scheduled = False
        """True if a timer is set to go on."""

    def add(
        self,
        append: DelayedAppend,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        needed: AppendLater | None,
    ) -> None:
        """Copy the batch at [start, end) and let it wait; `needed` if it was checked already.

        Raise ApiError, and never call the waiter, if the batch is refused at once.
        """
        broker, size = self._broker, end - start
        if broker.delayed_bytes and broker.delayed_bytes + size > MAX_DELAYED_BYTES:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "too many batches wait for their records to be checked; retry later",
            )
        if needed is None:
            needed = self._check(append, buffer, view, start, end)
        if isinstance(needed, NeedsValidation):
            self._submit(append, needed, view[start:end])
        else:
            append.batch = bytearray(view[start:end])
        append.size = size
        broker.delayed_bytes += size
        self._queue.append(append)
        if isinstance(needed, NeedsRoll):
            self._go_on_soon()

    def _check(
        self, append: DelayedAppend, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> NeedsValidation | None:
        """Return what must be done with the records before the batch's turn comes, if anything."""
        log = self._leader.partition.online_log()
        try:
            append.check(log, buffer, view, start, end, self._broker.wall_ms)
        except NeedsValidation as needed:
            return needed
        return None

    def _submit(self, append: DelayedAppend, needed: NeedsValidation, batch: memoryview) -> None:
        from ottla.records.validation import BATCH_START, TASK

        validation = needed.validation
        append.batch, append.start = validation.request(batch), BATCH_START
        append.is_ready = False

        def done(result: bytes | TaskFailed) -> None:
            self._validated(append, result, WITH_KEYS if validation.checks_keys else WELL_FORMED)

        try:
            self._broker.ports.helpers.submit(TASK, append.batch, done)
        except TaskFailed as failure:
            raise _not_validated(failure) from None

    def _validated(self, append: DelayedAppend, result: bytes | TaskFailed, checked: int) -> None:
        from ottla.records.validation import result_of

        append.is_ready = True
        try:
            if isinstance(result, TaskFailed):
                raise _not_validated(result)
            changed = result_of(result)
        except ApiError as refusal:
            append.refusal = refusal
        else:
            append.checked = max(append.checked, checked)
            if changed is not None:
                append.batch, append.start = changed, 0
        self._append_ready()

    def _append_ready(self) -> None:
        """Append what does not wait any more, up to the first batch that does.

        If that takes too long, go on in the next wake-up.
        """
        broker, queue = self._broker, self._queue
        while queue and queue[0].is_ready:
            if not broker.has_time():
                self._go_on_soon()
                break
            try:
                self._append(queue[0])
            except NeedsValidation as needed:
                self._validate_again(queue[0], needed)
            except NeedsRoll:
                self._go_on_soon()
                break
            else:
                broker.delayed_bytes -= queue.popleft().size
        if not queue and self._leader.delayed is self:
            self._leader.delayed = None

    def _go_on_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._broker.timers.at(self._broker.monotonic_ms + _PAUSE_MS, self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        self._append_ready()

    def _validate_again(self, append: DelayedAppend, needed: NeedsValidation) -> None:
        try:
            self._submit(append, needed, memoryview(append.batch)[append.start :])
        except ApiError as refusal:
            append.refusal, append.is_ready = refusal, True

    def _append(self, append: DelayedAppend) -> None:
        """Append the first batch, or tell why not."""
        leader, partition = self._leader, self._leader.partition
        try:
            if append.refusal is not None:
                raise append.refusal
            log = partition.online_log()
            if append.acks_all and log.config.min_insync_replicas > 1:
                leader.check_in_sync()
            base_offset = append.append_to(log, partition.leader_epoch, self._broker.wall_ms)
        except ApiError as refusal:
            if refusal.code in SEQUENCE_ERRORS and leader.unwritten:
                self._wait_for_write(WRITTEN, append, _RefusedWhenWritten(append.waiter, refusal))
            else:
                append.refuse(refusal)
        except OSError as problem:
            append.refuse(ApiError(*self._broker.storage_failed(partition, problem)))
        else:
            until = log.log_end_offset if append.acks_all else WRITTEN
            self._wait_for_write(until, append, append.waiter)
            append.waiter.accepted(
                append.place, append.position,
                base_offset, log.last_append_time, log.log_start_offset,
            )  # fmt: skip

    def _wait_for_write(self, until: int, append: DelayedAppend, waiter: AppendWaiter) -> None:
        unwritten = self._leader.unwritten
        if not unwritten:
            self._broker.appended.append(self._leader)
        unwritten.append((until, waiter, append.place, append.position))

    def refuse_all(self, error: ApiError) -> None:
        """Refuse everything that waits. What a helper process still does is for nothing."""
        queue, self._queue = self._queue, deque()
        self._leader.delayed = None
        for append in queue:
            self._broker.delayed_bytes -= append.size
            append.refuse(error)


class _RefusedWhenWritten:
    """Passes on a refusal when the batches that caused it are written.

    If that fails, their error counts.
    """

    __slots__ = ("_refusal", "_waiter")

    def __init__(self, waiter: AppendWaiter, refusal: ApiError) -> None:
        self._waiter = waiter
        self._refusal = refusal

    def accepted(
        self, place: Any, position: int, base_offset: int, append_time: int, log_start_offset: int
    ) -> None:
        raise AssertionError("a refused append is never accepted")

    def appended(self, place: Any, position: int, error: ApiError | None) -> None:
        self._waiter.appended(place, position, error or self._refusal)

    def wait_for_followers(self, place: Any, position: int) -> None:
        raise AssertionError("a refused append waits for no follower")


def append_later(
    broker: Broker,
    leader: PartitionLeader,
    append: DelayedAppend,
    buffer: bytearray,
    view: memoryview,
    start: int,
    end: int,
    needed: AppendLater | None,
) -> None:
    """Append the batch at [start, end) once it can be, and its turn has come.

    Raise ApiError, and never call the waiter, if the batch is refused at once.
    """
    if leader.delayed is not None:
        leader.delayed.add(append, buffer, view, start, end, needed)
        return
    delayed = DelayedAppends(leader, broker)
    delayed.add(append, buffer, view, start, end, needed)
    leader.delayed = delayed


def _not_validated(failure: TaskFailed) -> ApiError:
    """Return the error for a batch that nobody could look at: clients send it again."""
    return ApiError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"the records could not be checked ({failure}); retry later"
    )
