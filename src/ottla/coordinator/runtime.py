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

from ottla.coordinator.batches import batch_of
from ottla.coordinator.loading import Loader
from ottla.coordinator.refusals import refuse
from ottla.coordinator.serde import GroupRecord
from ottla.coordinator.shard import Command, GroupShard
from ottla.coordinator.surroundings import Reply, Surroundings
from ottla.model.errors import ApiError, ErrorCode
from ottla.records.batch import CorruptBatch
from ottla.replication.partition import Partition
from ottla.wire.message import Message

Append: TypeAlias = Callable[[Partition, bytearray, Callable[[ErrorCode], None]], int]
Answers: TypeAlias = list[tuple[Reply, Message]]

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_RECORDS_AT_A_TIME = 500


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
        self.shard = GroupShard(broker, self.run, log.config.max_message_bytes)
        self.leader_epoch = partition.leader_epoch
        self._broker = broker
        self._append = append
        self._on_failure = on_failure
        self._loader: Loader | None = Loader(log, self.shard)
        self.when_loaded: list[Command] = []
        """Commands that came while the shard was loading and must not be forgotten."""
        self._waiting: deque[Answers] = deque()
        """The answers of each batch that is written and not yet committed."""

    # -- loading and unloading -----------------------------------------------------------

    def load(self) -> bool:
        """Replay a bounded piece of the log; whether there is nothing more to do."""
        if self._loader is None:
            return True
        try:
            done = self._loader.step()
        except (OSError, CorruptBatch, ApiError) as error:
            self._broker.ports.report(
                f"group coordinator: {self.partition.topic.name}-{self.partition.index} cannot"
                f" be loaded: {error}"
            )
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
        for answers in waiting:
            _refuse(answers, code)
        answers, self.shard.answers = self.shard.answers, []
        _refuse(answers, code)

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
        return not self._waiting

    def _write(self, records: list[GroupRecord]) -> None:
        shard = self.shard
        answers, shard.answers = shard.answers, []
        try:
            if self.leader_epoch != self.partition.leader_epoch or self.partition.removed:
                raise ApiError(ErrorCode.NOT_COORDINATOR)
            base_offset = self._append(self.partition, self._batch(records), self._committed)
        except (ApiError, OSError) as error:
            self._refused(answers, error)
            return
        self._waiting.append(answers)
        for offset, (key, value) in enumerate(records, base_offset):
            shard.replay(key, value, offset)
        if shard.answers:  # given by the replay itself, to those who waited for a removed group
            answers += shard.answers
            shard.answers = []

    def _batch(self, records: list[GroupRecord]) -> bytearray:
        broker = self._broker
        return batch_of(records, broker.wall_ms, broker.config.offsets_topic_compression_codec)

    def _refused(self, answers: Answers, error: ApiError | OSError) -> None:
        """The records could not even be queued."""
        if isinstance(error, ApiError) and error.code in _TOO_LARGE:
            _refuse(answers, ErrorCode.UNKNOWN_SERVER_ERROR)  # the state is as it was
            return
        self._broker.ports.report(
            f"group coordinator: {self.partition.topic.name}-{self.partition.index} cannot be"
            f" written: {error}"
        )
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if isinstance(error, ApiError) and error.code is ErrorCode.NOT_COORDINATOR:
            code = error.code
        _refuse(answers, code)
        self._fail(code)

    def _send(self) -> None:
        """Send answers that need no records of their own, but not before those written earlier."""
        answers, self.shard.answers = self.shard.answers, []
        if self._waiting:
            self._waiting[-1].extend(answers)
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
