"""A shard and its log: commands become records, and answers wait until these are committed.

    LOADING -> ACTIVE     all records are replayed and committed
    LOADING -> CLOSED     this broker no longer leads the partition, or cannot read its log
    ACTIVE -> CLOSED      this broker no longer leads the partition, or a write failed

A closed runtime does nothing any more. Its successor loads what the log holds, and that is
also how a failed write is undone: a shard is ahead of its log only until the commit, and
answers that depend on the difference have not been sent yet.

Several commands may write before the log commits. The answers of each wait for its own batch,
and an answer without records waits for everything that was written before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ottla.coordinator.runtime.batch_builder import BatchBuilder
from ottla.coordinator.runtime.broker import Broker, SlicedWork
from ottla.coordinator.runtime.loader import Loader, Progress
from ottla.coordinator.runtime.record import CoordinatorRecord
from ottla.coordinator.runtime.reply import Reply
from ottla.coordinator.runtime.shard import Command, Shard
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.model.transactions import TransactionEnd
from ottla.records.batch import CorruptBatch
from ottla.records.control import ControlType, build_marker
from ottla.replication.partition import Partition
from ottla.wire.codec import EncodeError
from ottla.wire.message import Message

S = TypeVar("S", bound=Shard)
NewShard: TypeAlias = Callable[[Broker, Callable[[Command], None], int], S]
"""Makes an empty shard: see Shard for the arguments."""

Answers: TypeAlias = list[tuple[Reply, Message]]

_RECORDS_PER_WRITE = 500
_FULL_BATCH_BYTES = 32 * 1024  # of several commands: larger batches would load slowly
_END: Final[Any] = object()
_NOT_LEADER = (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class _MarkerWritten(Message):
    """The answer of a marker."""

    __slots__ = ("error_code",)

    def __init__(self) -> None:
        self.error_code = ErrorCode.NONE


class _MarkerReply:
    """Applies a marker when it is committed, and tells when that is done."""

    __slots__ = ("_done", "_work", "steps")

    def __init__(self, work: SlicedWork, done: Callable[[ErrorCode], None]) -> None:
        self._work = work
        self._done = done
        self.steps: Steps[None] | None = None
        """What applies the marker."""

    def send(self, response: Message) -> None:
        assert isinstance(response, _MarkerWritten)
        steps = self.steps
        if response.error_code is not ErrorCode.NONE:
            self._done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif steps is None or next(steps, _END) is _END:
            self._done(ErrorCode.NONE)
        else:
            self._work.run(self._apply(steps))

    def _apply(self, steps: Steps[None]) -> Steps[None]:
        yield from steps
        self._done(ErrorCode.NONE)


class RuntimeState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


# Members of an enumeration are looked up slowly.
_CLOSED: Final = RuntimeState.CLOSED
_NONE: Final = ErrorCode.NONE


class ShardRuntime(Generic[S]):
    """One partition that this broker leads, with its shard.

    `leader_epoch` is the epoch in which the runtime may write. The host moves it on while this
    broker stays the leader; a partition in any other epoch fences the runtime. `on_failure` is
    called when a write or a read failed and the runtime has closed itself.
    """

    def __init__(
        self,
        broker: Broker,
        partition: Partition,
        new_shard: NewShard[S],
        on_failure: Callable[[ShardRuntime[S]], None],
    ) -> None:
        log = partition.online_log()
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = RuntimeState.LOADING
        limit = min(log.config.max_message_bytes, log.config.segment_bytes)
        self.shard = new_shard(broker, self.run, limit)
        self.when_active: list[Callable[[], object]] = []
        """What to do as soon as the shard is loaded."""
        self._broker = broker
        self._encode = self.shard.encode
        self._on_failure = on_failure
        self._loader: Loader | None = Loader(log, self.shard)
        self._batch = BatchBuilder()
        """What this wake-up has written so far. `_batch_answers` wait for it."""
        self._batch_answers: Answers = []
        self._uncommitted: deque[Answers] = deque()
        """The answers of each batch that is appended and not committed yet."""

    # -- loading and unloading -----------------------------------------------------------

    def load(self, wake: Callable[[], None]) -> Progress:
        """Replay a slice of the log. `wake` is called after Progress.WAITING."""
        if self._loader is None:
            return Progress.DONE
        try:
            return self._loader.step(wake)
        except (OSError, CorruptBatch, ApiError) as error:
            self._report(f"cannot load: {error}")
            self._fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return Progress.DONE

    def activate(self) -> bool:
        """Begin to serve after `load`. Return False if what was replayed is not committed yet."""
        loader = self._loader
        if loader is None:
            return True
        if not loader.is_committed:
            return False
        for note in loader.notes:
            self._report(note)
        self._loader = None
        self.state = RuntimeState.ACTIVE
        self.shard.loaded()
        self._send()
        for action in self.when_active:
            action()
        return True

    def close(self, code: ErrorCode) -> None:
        """Stop, and answer all requests that wait with the error `code`."""
        if self.state is RuntimeState.CLOSED:
            return
        self.state = RuntimeState.CLOSED
        self._loader = None
        self.shard.close(code)
        uncommitted, self._uncommitted = self._uncommitted, deque()
        for answers in (*uncommitted, self._batch_answers, self.shard.answers):
            self._refuse(answers, code)
        self._batch_answers, self.shard.answers = [], []

    def _fail(self, code: ErrorCode) -> None:
        self.close(code)
        self._on_failure(self)

    # -- commands ------------------------------------------------------------------------

    def run(self, command: Command) -> None:
        """Run a command, write its records, and answer when they are committed."""
        if self.state is not RuntimeState.CLOSED:
            self.finish(command())

    def finish(self, records: Sequence[CoordinatorRecord]) -> None:
        """Write the records of a command, and send its answers when they are committed."""
        if records:
            self._write(records)
        elif self.shard.answers:
            self._send()

    def write_in_parts(self, records: Sequence[CoordinatorRecord]) -> None:
        """Write any number of records that do not have to be in one batch."""
        for start in range(0, len(records), _RECORDS_PER_WRITE):
            if self.state is RuntimeState.ACTIVE:
                self.finish(records[start : start + _RECORDS_PER_WRITE])

    def write_transactional(
        self, records: Sequence[CoordinatorRecord], producer_id: int, epoch: int, guard: int
    ) -> None:
        """Write the records of a command as part of a client's transaction.

        They count when its marker commits them. If the log refuses them, because the producer is
        fenced or has no such transaction, the answers get that error, and nothing has changed.
        """
        shard = self.shard
        answers, shard.answers = shard.answers, []
        batch = BatchBuilder()
        try:
            for record in records:
                batch.add(*self._encode(record))
        except EncodeError:  # a string is longer than a record's string can be
            self._refuse(answers, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if batch.size > shard.max_batch_bytes:
            self._refuse(answers, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        sealed = batch.seal(self._broker.wall_ms, shard.compression_codec, (producer_id, epoch))
        try:
            self._append_transactional(sealed, answers, guard, 0)
        except ApiError as error:
            self._refuse(answers, error.code)
            return
        offset = self.partition.online_log().log_end_offset - len(records)
        for position, (key, value) in enumerate(records):
            shard.replay_transactional(key, value, producer_id, offset + position)

    def write_marker(self, end: TransactionEnd, done: Callable[[ErrorCode], None]) -> None:
        """Write the marker that ends a client's transaction.

        `done` is called when it is committed and applied. Applying it is done in slices.

        Raise ApiError if the log refuses it, or if this broker does not lead the partition.
        """
        if self.state is not RuntimeState.ACTIVE:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        marker = build_marker(
            ControlType.COMMIT if end.is_commit else ControlType.ABORT,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            timestamp=self._broker.wall_ms,
        )
        reply = _MarkerReply(self._broker.sliced_work, done)
        try:
            self._append_transactional(
                marker, [(reply, _MarkerWritten())], 0, end.transaction_version
            )
        except ApiError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            # Kafka's coordinators give up a marker that is refused with a code of groups.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
        if self.is_active:
            reply.steps = self.shard.end_transaction(end.producer_id, committed=end.is_commit)

    def _append_transactional(
        self, batch: bytearray, answers: Answers, guard: int, transaction_version: int
    ) -> None:
        """Append a batch of a transaction after what was written before. Raise ApiError."""
        if self.leader_epoch != self.partition.leader_epoch or self.partition.removed:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if self._batch.count:
            self._end_of_wake_up()
            if self.state is RuntimeState.CLOSED:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
        self._uncommitted.append(answers)
        try:
            self._broker.append_transactional(
                self.partition,
                batch,
                self._committed,
                guard=guard,
                transaction_version=transaction_version,
            )
        except ApiError:
            self._uncommitted.pop()
            raise
        except OSError as error:
            self._uncommitted.pop()
            self._write_failed(error)
            raise ApiError(ErrorCode.NOT_COORDINATOR) from error

    def answer(self, reply: Reply, response: Message) -> None:
        """Answer a request once everything written before is committed."""
        if self.state is RuntimeState.CLOSED:
            reply.send(self.shard.refuse(response, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self.shard.answer(reply, response)
        self._send()

    @property
    def is_active(self) -> bool:
        """True while the shard serves."""
        return self.state is RuntimeState.ACTIVE

    @property
    def is_settled(self) -> bool:
        """True if everything written is committed, so that the state may be told to clients."""
        return not self._uncommitted and not self._batch.count

    def _write(self, records: Sequence[CoordinatorRecord]) -> None:
        shard = self.shard
        answers, shard.answers = shard.answers, []
        try:
            if self.leader_epoch != self.partition.leader_epoch or self.partition.removed:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
            if not self._add_to_batch(records):
                self._refuse(answers, ErrorCode.UNKNOWN_SERVER_ERROR)
                return
        except EncodeError:  # a string is longer than a record's string can be
            self._refuse(answers, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        except (ApiError, OSError) as error:
            self._batch_answers += answers
            self._write_failed(error)
            return
        for key, value in records:
            shard.replay(key, value)
        self._batch_answers += answers
        if shard.answers:  # of the replay itself, to requests that waited for something removed
            self._batch_answers += shard.answers
            shard.answers = []

    def _add_to_batch(self, records: Sequence[CoordinatorRecord]) -> bool:
        """Add records to the batch that is appended when the wake-up ends.

        Return False, and change nothing, if they are too large for one batch. Raise EncodeError,
        and change nothing, if one of them cannot be encoded.
        """
        batch, encode = self._batch, self._encode
        count, size = batch.count, batch.size
        try:
            for record in records:
                key, value = encode(record)
                batch.add(key, value)
        except EncodeError:
            batch.restore(count, size)
            raise
        if not count:
            self._broker.before_write.append(self._end_of_wake_up)
        elif batch.size > _FULL_BATCH_BYTES:
            batch.restore(count, size)
            self._append_batch()
            return self._add_to_batch(records)
        if batch.size > self.shard.max_batch_bytes:
            batch.restore(count, size)
            return False
        return True

    def _end_of_wake_up(self) -> None:
        if self._batch.count and self.state is not _CLOSED:
            try:
                self._append_batch()
            except (ApiError, OSError) as error:
                self._write_failed(error)

    def _append_batch(self) -> None:
        batch, answers = self._batch, self._batch_answers
        self._batch, self._batch_answers = BatchBuilder(), []
        self._uncommitted.append(answers)
        broker = self._broker
        sealed = batch.seal(broker.wall_ms, self.shard.compression_codec)
        broker.append_internal(self.partition, sealed, self._committed)

    def _committed(self, code: ErrorCode) -> None:
        """Send the answers of the oldest uncommitted batch, or fail with the error `code`."""
        if self.state is _CLOSED:
            return
        if code is not _NONE:
            self._fail(_coordinator_error(code))
            return
        for reply, response in self._uncommitted.popleft():
            reply.send(response)

    def _send(self) -> None:
        """Send answers that have no records of their own, after those of earlier records."""
        answers, self.shard.answers = self.shard.answers, []
        if self._batch.count:
            self._batch_answers += answers
            return
        if self._uncommitted:
            self._uncommitted[-1] += answers
            return
        for reply, response in answers:
            reply.send(response)

    # -- errors --------------------------------------------------------------------------

    def _write_failed(self, error: ApiError | OSError) -> None:
        """Close: the shard is ahead of its log, and must be loaded again."""
        code = error.code if isinstance(error, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR
        if code not in _NOT_LEADER:
            self._report(f"cannot write: {error}")
        self._fail(_coordinator_error(code))

    def _refuse(self, answers: Answers, code: ErrorCode) -> None:
        for reply, response in answers:
            reply.send(self.shard.refuse(response, code))

    def _report(self, message: str) -> None:
        name = f"{self.partition.topic.name}-{self.partition.index}"
        self._broker.ports.report(f"coordinator of {name}: {message}")


def _coordinator_error(code: ErrorCode) -> ErrorCode:
    """Return what clients are told if a write fails: to look for the new leader, or to retry."""
    if code in _NOT_LEADER:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
