"""A shard: the state of one partition of an internal topic, kept by a coordinator.

Subclasses hold groups, transactions or whatever else a coordinator coordinates. The state
changes by `replay` only. A command looks at the state and returns records. The runtime writes
these, replays them at once, and sends the command's answers when the records are committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.record import CoordinatorRecord, RecordKey, RecordValue
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ErrorCode
from ottla.model.steps import Steps
from ottla.ports import Buffer
from ottla.replication.timers import Timer
from ottla.wire.message import Message

Command: TypeAlias = Callable[[], Sequence[CoordinatorRecord]]
"""Looks at a shard, answers requests, and returns the records of its decision."""

_BATCH_OVERHEAD = 256  # more than the header of a batch and of a record


class Shard(ABC):
    """The state of one partition, and how its records and responses are treated."""

    LATEST_ONLY: ClassVar[tuple[bytes, ...]] = ()
    """Prefixes of keys of which only the last record counts.

    The loader decodes and replays only that one, in any order among the records of other keys.
    """

    def __init__(
        self, broker: Broker, run: Callable[[Command], None], max_batch_bytes: int
    ) -> None:
        self.broker = broker
        self.max_batch_bytes = max_batch_bytes
        """The most that one command may write."""
        self.answers: list[tuple[Reply, Message]] = []
        """The answers of commands that the runtime has not taken over yet."""
        self._run = run

    # -- what commands use ---------------------------------------------------------------

    def answer(self, reply: Reply, response: Message) -> None:
        """Send a response once everything written so far is committed."""
        self.answers.append((reply, response))

    def after(self, delay_ms: float, command: Command) -> Timer:
        """Run a command later."""
        broker = self.broker
        return broker.timers.at(broker.monotonic_ms + delay_ms, lambda: self._run(command))

    def fits(self, record: CoordinatorRecord) -> bool:
        """Return True if a record is small enough to be written."""
        key, value = self.encode(record)
        return len(key) + len(value or b"") + _BATCH_OVERHEAD <= self.max_batch_bytes

    # -- state ---------------------------------------------------------------------------

    @abstractmethod
    def replay(self, key: RecordKey, value: RecordValue | None) -> None:
        """Apply one record to the state."""

    def replay_transactional(
        self, key: RecordKey, value: RecordValue | None, producer_id: int, record_offset: int
    ) -> None:
        """Apply one record of a transaction. It counts when the transaction commits."""
        return  # most coordinators never write in transactions of clients

    def end_transaction(self, producer_id: int, *, committed: bool) -> Steps[None]:
        """Return the steps that apply the marker of a transaction.

        They may be run later: what the producer writes from now on is in its next transaction.
        """
        yield from ()

    @property
    def has_open_transactions(self) -> bool:
        """True while records of a transaction wait for its marker."""
        return False

    @abstractmethod
    def loaded(self) -> None:
        """Start timers: all records are replayed, and requests come from now on."""

    @abstractmethod
    def close(self, code: ErrorCode) -> None:
        """Stop timers, and answer all requests that are parked in the shard with `code`."""

    # -- records and responses -----------------------------------------------------------

    @staticmethod
    @abstractmethod
    def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return the key and the value of a record as bytes."""

    @staticmethod
    @abstractmethod
    def decode(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
        """Return the record that a log record holds, or None if its kind is unknown.

        Raise RecordError if it cannot be decoded.
        """

    @staticmethod
    @abstractmethod
    def refuse(response: Message, code: ErrorCode) -> Message:
        """Return an error response to send instead of this one."""

    @property
    def compression_codec(self) -> int:
        """The codec that batches of records are compressed with."""
        return 0
