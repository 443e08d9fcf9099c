"""Clients that read a partition, transform what they read, and write it, exactly once.

Each transaction of a copier has some batches of its input, one batch for each of them in the
output, and the offset up to which it has read. A copier takes over its transactional id, asks for
the committed offset, and goes on from there. It may crash, or pause for longer than the timeout of
its transaction, and go on as if nothing had happened. Several copiers share a transactional id: the
last one fences the others. Some transactions also read what others have written to the output.

Clients of transaction version 0 and 1 add partitions by themselves, and keep their epoch. If a
client does not know whether a request may still arrive, it begins again with another epoch: the
protocol does not protect it otherwise. Clients of version 2 send the request again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any, Protocol

from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import TRANSACTIONS_TOPIC
from ottla.records.batch import scan
from ottla.records.record import build_batch
from ottla.sim.cluster_run import copier_requests as requests
from ottla.sim.cluster_run.channels import (
    Answer,
    Asking,
    Call,
    Course,
    CourseClient,
    Lost,
    Pause,
)
from ottla.sim.cluster_run.clients import ClusterRunOfClients
from ottla.sim.cluster_run.history import PartitionKey
from ottla.sim.cluster_run.transaction_history import (
    OFFSETS_KEY,
    InputKey,
    Transaction,
    TransactionHistory,
)
from ottla.sim.cluster_run.transaction_readers import visible_uids
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.message import Message
from ottla.wire.messages.init_producer_id import InitProducerIdRequest

_RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Answers to a client that was replaced, or was too slow."""
_OTHER_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
"""The answer to a client whose producer id is no longer that of the transactional id."""
_READS_OUTPUT = 0.3
_COPIES, _MOST_COPIES = 5, 30
_COPIES_A_KEY = 4
"""The most batches in a transaction, and when a copier has to catch up."""
_MOST_IN_A_BATCH = 12
"""More of the longest records do not fit into the smallest segments (`profile.py`)."""


class ClusterRunOfCopiers(ClusterRunOfClients, Protocol):
    """What copiers ask of the run."""

    transactions: TransactionHistory
    clock_skew_ms: float
    """How far the clocks of coordinators may be apart."""

    def init_number(self, exchange: Exchange) -> tuple[int, int]:
        """Return which decision about its transactional id an answer was.

        The second number is how often the id had expired before.
        """
        ...


class StartOver(Exception):
    """The process gives up, and another one takes its place."""


class Copier(CourseClient):
    """One process after the other, each of which copies a partition."""

    environment: ClusterRunOfCopiers
    AWAY_MS: tuple[float, ...] = (100.0, 1500.0, 4000.0)
    """For how long it may be away."""
    STUMBLES = 0.1
    """How often something happens to it between its last write and the end of a transaction."""
    group_id = requests.GROUP_ID
    member = requests.NO_MEMBER
    """The member of the group that commits offsets."""

    def __init__(
        self,
        name: str,
        environment: ClusterRunOfCopiers,
        chance: Random,
        *,
        source: PartitionKey,
        target: str,
        version: int,
        timeout_ms: int,
    ) -> None:
        super().__init__(name, environment, chance)
        self.source = source
        self._target = target
        self._version = version
        self._timeout_ms = timeout_ms
        self.transactional_id = f"copy-{source[0]}-{source[1]}"
        self.is_steady = False
        """Set when nothing is to go wrong with the client any more."""
        self.is_retired = False
        """Set when another client is to go on alone."""
        self._producer = (-1, -1)
        self._sequences: dict[PartitionKey, int] = {}
        self._position = 0
        self._init = 0
        """Which decision about the transactional id made this client the producer."""
        self._expirations = 0
        """How often the transactional id had expired by then."""
        self._read_up_to: dict[PartitionKey, int] = {}
        """How far it has read the output."""
        self._began_ms = 0.0
        self._must_restart = False

    # -- life ----------------------------------------------------------------------------

    def course(self) -> Course:
        while not self.is_retired:
            yield Pause(self.chance.choice((0.0, 50.0, 300.0, 1500.0)))
            try:
                yield from self._live()
            except StartOver:
                for channel in self._channels.values():
                    channel.forget()

    def _live(self) -> Course:
        self._must_restart = False
        yield from self._take_over()
        yield from self._find_position()
        while not self.is_retired:
            yield Pause(self.chance.choice((1.0, 20.0, 100.0)))
            found = yield from self._read()
            if found and self._target in self.environment.image.topics:
                yield from self._copy(found)

    def _stumble(self, chance: float = 0.03) -> Course:
        """Crash or be away for a while, by chance."""
        dice = self.chance.random()
        if self.is_steady or dice > chance:
            return
        if dice * 3 < chance:
            raise StartOver
        yield Pause(self.chance.choice(self.AWAY_MS))

    def calm_down(self) -> None:
        """Go on as a new process with which nothing goes wrong."""
        self.is_steady = self._must_restart = True

    # -- the producer --------------------------------------------------------------------

    def _take_over(self) -> Course:
        asked = requests.take_over(self.transactional_id, self._timeout_ms)
        exchange = yield from self._ask(self._coordinator, *asked)
        reply: Any = exchange.reply
        self._init, self._expirations = self.environment.init_number(exchange)
        self._producer = reply.producer_id, reply.producer_epoch
        self._sequences.clear()

    @property
    def input(self) -> InputKey:
        """What the client copies, and for which group."""
        return self.group_id, *self.source

    def _find_position(self) -> Course:
        known = self.environment.transactions.input(self.input)
        least = known.visible_position
        asked = requests.committed_offset(self.group_id, self.source)
        exchange = yield from self._ask(self._group_coordinator, *asked)
        reply: Any = exchange.reply
        offset = max(reply.topics[0].partitions[0].committed_offset, 0)
        if not least <= offset <= known.position:
            raise Violation(
                f"{exchange!r}: the committed offset is {offset}; transactions have committed"
                f" {least} to {known.position}"
            )
        self._position = offset

    # -- a transaction -------------------------------------------------------------------

    def _read(self) -> Generator[list[Call] | Pause, list[Answer], list[tuple[int, int]]]:
        """Return some batches of the input, as offsets of their first and after their last."""
        asked = requests.read(self.source, self._position)
        exchange = yield from self._ask(lambda: self._leader(self.source), *asked)
        reply: Any = exchange.reply
        data = bytes(reply.responses[0].partitions[0].records or b"")
        found = [
            (batch.base_offset, batch.next_offset)
            for batch in scan(data, 0, len(data))
            if batch.base_offset >= self._position
        ]
        return found[: _MOST_COPIES if self.is_steady else self.chance.randint(1, _COPIES)]

    def _copy(self, found: list[tuple[int, int]]) -> Course:
        transactions = self.environment.transactions
        transaction = transactions.begin(
            self.transactional_id, self._producer, self.input, found[0][0], found[-1][1]
        )
        self._began_ms = self.environment.monotonic_ms()
        yield from self._write(transaction, found)
        if not self.is_steady and self.chance.random() < _READS_OUTPUT:
            yield from self._read_output(transaction)
        is_commit = self.is_steady or self.chance.random() < 0.8
        if is_commit or self.chance.random() < 0.5:
            yield from self._commit_offset(transaction)
        yield from self._stumble(self.STUMBLES)
        yield from self._end(transaction, committed=is_commit)
        if is_commit:
            self._position = transaction.end

    def _write(self, transaction: Transaction, found: list[tuple[int, int]]) -> Course:
        by_target: dict[PartitionKey, list[tuple[int, int]]] = {}
        partitions = len(self.environment.image.topics[self._target].partitions)
        for part in found:
            by_target.setdefault((self._target, part[0] % partitions), []).append(part)
        if self._version < 2:
            yield from self._ask(
                self._coordinator,
                *requests.add_partitions(self.transactional_id, self._producer, list(by_target)),
            )
        for key, parts in by_target.items():
            most = _MOST_IN_A_BATCH if self.is_steady else 2
            for first in range(0, len(parts), most):
                yield from self._stumble()
                yield from self._produce(transaction, key, parts[first : first + most])

    def _read_output(self, transaction: Transaction) -> Course:
        """Read what others have written to a partition, as part of the transaction."""
        partitions = len(self.environment.image.topics[self._target].partitions)
        key = self._target, self.chance.randrange(partitions)
        position = self._read_up_to.get(key, 0)
        asked = requests.read(key, position)
        exchange = yield from self._ask(lambda: self._leader(key), *asked)
        reply: Any = exchange.reply
        answer = reply.responses[0].partitions[0]
        transactions = self.environment.transactions
        for uid, next_offset in visible_uids(answer, position):
            self._read_up_to[key] = next_offset
            writer = transactions.transaction_of(uid)
            if writer is not None and transactions.is_strict:
                transactions.cycles.read(transaction.number, writer.number)

    def _produce(
        self, transaction: Transaction, key: PartitionKey, parts: list[tuple[int, int]]
    ) -> Course:
        uid, sequence = self.environment.new_uid(), self._sequences.get(key, 0)
        now_ms = self.environment.wall_ms()
        batch = build_batch(
            [
                (_key_of(part[0]), b"%d.%d.copy of %d" % (uid, index, part[0]), now_ms, ())
                for index, part in enumerate(parts)
            ],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        self.environment.transactions.will_write(transaction, key, uid)
        asked = requests.write(self.transactional_id, key, bytes(batch), self._version)
        exchange = yield from self._ask(lambda: self._leader(key), *asked)
        self._sequences[key] = sequence + len(parts)
        reply: Any = exchange.reply
        offset = reply.responses[0].partition_responses[0].base_offset
        is_seen = self.environment.transactions.is_strict
        self.environment.history.acknowledged(key, uid, offset, is_seen=is_seen)

    def _commit_offset(self, transaction: Transaction) -> Course:
        if self._version < 2:
            asked = requests.add_offsets(self.transactional_id, self._producer, self.group_id)
            yield from self._ask(self._coordinator, *asked)
        self.environment.transactions.will_write(transaction, OFFSETS_KEY, transaction.number)
        asked = requests.commit_offset(
            self.transactional_id,
            self._producer,
            self.source,
            transaction,
            self._version,
            self.member,
        )
        yield from self._ask(self._group_coordinator, *asked)

    def _end(self, transaction: Transaction, *, committed: bool) -> Course:
        transaction.asks_commit = committed
        asked = requests.end(self.transactional_id, self._producer, committed, self._version)
        exchange = yield from self._ask(self._coordinator, *asked)
        self.environment.transactions.ended(transaction, committed=committed)
        if self._version >= 2:
            reply: Any = exchange.reply
            self._producer = reply.producer_id, reply.producer_epoch
            self._sequences.clear()

    # -- brokers -------------------------------------------------------------------------

    def _any(self) -> int:
        return self.chance.randint(1, self.environment.broker_count)

    def _leader(self, key: PartitionKey) -> int:
        """Return the leader of a partition, sometimes somebody else."""
        topic = self.environment.image.topics.get(key[0])
        if topic is None or self.chance.random() < 0.05:
            return self._any()
        leader = topic.partitions[key[1]].leader
        return leader if leader > 0 else self._any()

    def _coordinator(self) -> int:
        key = self._coordinator_key()
        return self._any() if key is None else self._leader(key)

    def _coordinator_key(self) -> PartitionKey | None:
        """Return the partition of the transactional id, None before its topic is created."""
        topic = self.environment.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        return TRANSACTIONS_TOPIC, partition_of(self.transactional_id, len(topic.partitions))

    def _is_deposed(self, number: int) -> bool:
        """Return True if a broker is not the coordinator by the newest metadata.

        It may have been, and not know yet that it no longer is. Then it answers from what it knew,
        as Kafka's does: it may say that it does not know a transactional id. Nothing comes of it.
        """
        key = self._coordinator_key()
        if key is None:
            return False
        return self.environment.image.topics[key[0]].partitions[key[1]].leader != number

    def _group_coordinator(self) -> int:
        return self._leader(OFFSETS_KEY)

    # -- requests ------------------------------------------------------------------------

    def _ask(self, to: Callable[[], int], request: Message, version: int) -> Asking:
        """Ask until the answer is no error that may pass. Raise StartOver if the client is out."""
        while True:
            kind = requests.coordinator_kind(request)
            if kind is not None and self._has_no_topic(kind):
                find = requests.find_coordinator(kind, self.group_id, self.transactional_id)
                yield [Call(self._any(), *find)]
                yield Pause(100.0)
                continue
            number = to()
            answer = yield from self._call(Call(number, request, version))
            if isinstance(answer, Lost):
                self._lose(answer, request)
            else:
                code = requests.code_of(answer)
                if code == ErrorCode.NONE:
                    return answer
                if to != self._coordinator or not self._is_deposed(number):
                    self._refused(answer, code)
            yield Pause(self.chance.choice((5.0, 20.0, 100.0)))
            if self.is_retired or self._must_restart:
                raise StartOver

    def _call(self, call: Call) -> Generator[list[Call] | Pause, list[Answer], Answer]:
        """Send a request, and take note of those that fence other producers."""
        known = self.environment.transactions.id(self.transactional_id)
        is_init = isinstance(call.request, InitProducerIdRequest)
        known.inits_under_way += is_init
        (answer,) = yield [call]
        known.inits_under_way -= is_init
        if is_init and isinstance(answer, Lost):  # it may be decided, even if the broker has ended
            known.init_lost_ms = self.environment.monotonic_ms()
        return answer

    def _has_no_topic(self, name: str) -> bool:
        return name not in self.environment.image.topics

    def _lose(self, answer: Lost, request: Message) -> None:
        if self._version < 2 and not answer.is_settled and requests.changes(request):
            raise StartOver

    def _refused(self, exchange: Exchange, code: int) -> None:
        if code in _RETRIED:
            return
        if code in _FENCED and self._may_be_out():
            raise StartOver
        if code == _OTHER_ID and self._has_lost_its_id():
            raise StartOver
        raise Violation(f"{exchange!r}: answered with {ErrorCode(code).name}")

    def _has_lost_its_id(self) -> bool:
        """Return True if the transactional id has expired, or got another producer id.

        It gets another one from whoever fences this client in the last epoch of its producer id.
        """
        known = self.environment.transactions.id(self.transactional_id)
        if known.expirations > self._expirations:
            return True
        return self._producer[0] != known.newest_producer_id and self._may_be_out()

    def _may_be_out(self) -> bool:
        """Return True if this client has a reason to be fenced."""
        now_ms = self.environment.monotonic_ms()
        if now_ms - self._began_ms + self.environment.clock_skew_ms > self._timeout_ms * 0.9:
            return True
        transactions = self.environment.transactions
        return transactions.may_be_fenced(self.transactional_id, self._init, now_ms)


def _key_of(uid: int) -> bytes:
    """Return the key of a copy. Most replace each other in a compacted topic, some stay."""
    return b"copy" if uid % _COPIES_A_KEY else b"copy-%d" % uid
