"""A shard and its log: commands become records, and answers wait for their commit.

    LOADING -> ACTIVE     all records are replayed
    LOADING -> CLOSED     the partition is no longer ours, or cannot be read
    ACTIVE -> CLOSED      it is no longer ours, or a write has failed

A closed runtime does nothing any more; its successor loads what the log holds. That is also
how a failed write is undone: a shard is ahead of its log only until the commit, and whoever
was answered from that state has not heard it yet.

Several commands may write before the log commits; each one's answers wait for its own batch,
and an answer without records for all that was written before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TypeAlias

from ottla.coordinator.groups.error_response import refuse
from ottla.coordinator.groups.group_shard import Command, GroupShard
from ottla.coordinator.groups.record_serde import GroupRecord, encode
from ottla.coordinator.runtime.batch_builder import BatchBuilder
from ottla.coordinator.runtime.broker import Reply, Surroundings
from ottla.coordinator.runtime.loader import Loader
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import CorruptBatch
from ottla.replication.partition import Partition
from ottla.wire.codec import EncodeError
from ottla.wire.message import Message

Append: TypeAlias = Callable[[Partition, bytearray, Callable[[ErrorCode], None]], int]
Answers: TypeAlias = list[tuple[Reply, Message]]

_RECORDS_AT_A_TIME = 500
_ENOUGH_BYTES = 32 * 1024  # of records of several commands: larger batches would load slowly


class RuntimeState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class ShardRuntime:
    """One partition of __consumer_offsets that this broker leads, in one leader epoch or more.

    `on_failure` is told when a write or a read failed and the runtime has closed itself.
    """

    def __init__(
        self,
        broker: Surroundings,
        partition: Partition,
        append: Append,
        on_failure: Callable[[ShardRuntime], None],
    ) -> None:
        log = partition.online_log()
        self.partition = partition
        self.state = RuntimeState.LOADING
        limit = min(log.config.max_message_bytes, log.config.segment_bytes)
        self.shard = GroupShard(broker, self.run, limit)
        self.leader_epoch = partition.leader_epoch
        self._broker = broker
        self._append = append
        self._on_failure = on_failure
        self._loader: Loader | None = Loader(log, self.shard)
        self.when_loaded: list[Command] = []
        """Commands that came while the shard was loading and must not be forgotten."""
        self.rewritten = 0
        """How many records the last rewriting of the live state took."""
        self._batch = BatchBuilder()
        """What this wake-up has written so far; `_collected` are the answers that wait for it."""
        self._collected: Answers = []
        self._waiting: deque[Answers] = deque()
        """The answers of each batch that is appended and not yet committed."""

    # -- loading and unloading -----------------------------------------------------------

    def load(self) -> bool:
        """Replay a bounded piece of the log; whether there is nothing more to do."""
        if self._loader is None:
            return True
        try:
            done = self._loader.step()
        except (OSError, CorruptBatch, ApiError) as error:
            self._report(f"cannot be loaded: {error}")
            self._fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return True
        if done:
            for note in self._loader.notes:
                self._broker.ports.report(f"group coordinator: {note}")
            self._loader = None
            self.state = RuntimeState.ACTIVE
            self.shard.loaded()
            self._send()
            for command in self.when_loaded:
                self.write_in_parts(command())
        return done

    def close(self, code: ErrorCode) -> None:
        """Stop here; whoever waits for an answer is refused with `code`."""
        if self.state is RuntimeState.CLOSED:
            return
        self.state = RuntimeState.CLOSED
        self._loader = None
        self.shard.close(code)
        waiting, self._waiting = self._waiting, deque()
        for answers in (*waiting, self._collected, self.shard.answers):
            _refuse(answers, code)
        self._collected, self.shard.answers = [], []

    def _fail(self, code: ErrorCode) -> None:
        self.close(code)
        self._on_failure(self)

    # -- commands ------------------------------------------------------------------------

    def run(self, command: Command) -> None:
        """Let a command decide, write what it wants written, answer when that is committed."""
        if self.state is not RuntimeState.CLOSED:
            self.finish(command())

    def finish(self, records: list[GroupRecord]) -> None:
        """Write the records of a command and send its answers when they are committed."""
        if records:
            self._write(records)
        elif self.shard.answers:
            self._send()

    def write_in_parts(self, records: Sequence[GroupRecord]) -> None:
        """Write records that need not be kept all or none, however many."""
        for start in range(0, len(records), _RECORDS_AT_A_TIME):
            if self.state is RuntimeState.ACTIVE:
                self.finish(list(records[start : start + _RECORDS_AT_A_TIME]))

    def rewrite(self, records: Sequence[GroupRecord]) -> None:
        """Write records that the log holds already, without replaying them."""
        try:
            for record in records:
                self._collect([encode(record)])
        except (ApiError, OSError) as error:
            self._cannot_write(error)

    def answer(self, reply: Reply, response: Message) -> None:
        """Answer a request once all that was written before is committed."""
        if self.state is RuntimeState.CLOSED:
            reply.send(refuse(response, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self.shard.answer(reply, response)
        self._send()

    @property
    def is_settled(self) -> bool:
        """Whether everything written is committed, so that what the shard says may be told."""
        return not self._waiting and not self._batch.count

    def _write(self, records: list[GroupRecord]) -> None:
        shard = self.shard
        answers, shard.answers = shard.answers, []
        try:
            if self.leader_epoch != self.partition.leader_epoch or self.partition.removed:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
            if not self._collect([encode(record) for record in records]):
                _refuse(answers, ErrorCode.UNKNOWN_SERVER_ERROR)
                return
        except EncodeError:  # a text longer than a record's may be
            _refuse(answers, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        except (ApiError, OSError) as error:
            self._collected += answers
            self._cannot_write(error)
            return
        for key, value in records:
            shard.replay(key, value)
        self._collected += answers
        if shard.answers:  # given by the replay itself, to those who waited for a removed group
            self._collected += shard.answers
            shard.answers = []

    def _collect(self, records: list[tuple[bytes, bytes | None]]) -> bool:
        """Put records into the batch that is appended when the node settles.

        False, and nothing done, if they are too large for one batch.
        """
        batch = self._batch
        count, size = batch.count, batch.size
        if not count:
            self._broker.before_commit.append(self._settle)
        for key, value in records:
            batch.add(key, value)
        if count and batch.size > _ENOUGH_BYTES:
            batch.take_back(count, size)
            self._append_batch()
            return self._collect(records)
        if batch.size > self.shard.max_batch_bytes:
            batch.take_back(count, size)
            return False
        return True

    def _settle(self) -> None:
        """The wake-up ends: what was collected is appended."""
        if self._batch.count and self.state is not RuntimeState.CLOSED:
            try:
                self._append_batch()
            except (ApiError, OSError) as error:
                self._cannot_write(error)

    def _append_batch(self) -> None:
        batch, answers = self._batch, self._collected
        self._batch, self._collected = BatchBuilder(), []
        self._waiting.append(answers)
        broker = self._broker
        sealed = batch.seal(broker.wall_ms, broker.config.offsets_topic_compression_codec)
        self._append(self.partition, sealed, self._committed)

    def _cannot_write(self, error: ApiError | OSError) -> None:
        """The log takes no records: the shard is ahead of it and has to be loaded anew."""
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if isinstance(error, ApiError) and error.code is ErrorCode.NOT_COORDINATOR:
            code = error.code
        else:
            self._report(f"cannot be written: {error}")
        self._fail(code)

    def _report(self, what: str) -> None:
        name = f"{self.partition.topic.name}-{self.partition.index}"
        self._broker.ports.report(f"group coordinator: {name} {what}")

    def _send(self) -> None:
        """Send answers that need no records of their own, but not before those written earlier."""
        answers, self.shard.answers = self.shard.answers, []
        if self._batch.count:
            self._collected += answers
            return
        if self._waiting:
            self._waiting[-1] += answers
            return
        for reply, response in answers:
            reply.send(response)

    def _committed(self, code: ErrorCode) -> None:
        """The log has committed the oldest batch that waits, or could not."""
        if self.state is RuntimeState.CLOSED:
            return
        if code is not ErrorCode.NONE:
            self._fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        for reply, response in self._waiting.popleft():
            reply.send(response)


def _refuse(answers: Answers, code: ErrorCode) -> None:
    for reply, response in answers:
        reply.send(refuse(response, code))
