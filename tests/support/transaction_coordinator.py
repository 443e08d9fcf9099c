"""A transaction coordinator on a node in memory, with scripted partition leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.coordinator.transactions.add_partitions import AddPartitions
from ottla.coordinator.transactions.broker import MarkerCodes
from ottla.coordinator.transactions.end_transaction import EndTransaction
from ottla.coordinator.transactions.init_producer import InitProducer, ProducerIdAndEpoch
from ottla.coordinator.transactions.internal_topic import transactions_topic
from ottla.coordinator.transactions.outcome import Outcome
from ottla.coordinator.transactions.transaction import Transaction
from ottla.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transactions.transaction_shard import TransactionShard
from ottla.memory_files import MemoryFiles
from ottla.metadata.records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TRANSACTIONS_TOPIC, TopicPartition
from ottla.ports import Peer, Ports, Response
from ottla.testing.fakes import FakeClock, FakeRandom, InlineBackground
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)
from tests.support.decisions import create_topics

ID = "payments"
TIMEOUT_MS = 60_000


class Told:
    """Remembers the outcome of a request."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def __call__(self, outcome: Outcome) -> None:
        assert not self.outcomes, "a request is answered once"
        self.outcomes.append(outcome)

    @property
    def is_told(self) -> bool:
        return bool(self.outcomes)

    @property
    def outcome(self) -> Outcome:
        (outcome,) = self.outcomes
        return outcome

    @property
    def code(self) -> ErrorCode:
        return self.outcome.error_code

    @property
    def producer(self) -> tuple[int, int]:
        assert self.code is ErrorCode.NONE, self.code
        return self.outcome.producer_id, self.outcome.producer_epoch


class SilentPeer:
    """A broker that takes requests and never answers."""

    on_lost: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.sent = 0

    def send(
        self,
        api_key: int,
        api_version: int,
        body: bytes,
        timeout_ms: float,
        done: Callable[[Response | OSError], None],
    ) -> None:
        self.sent += 1

    def close(self) -> None:
        pass


class Leaders:
    """All partition leaders: they write markers when they are told to, and may refuse."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int, int, int, bool]] = []
        """Topic, partition, producer id, epoch and result of every marker."""
        self.requests: list[WriteTxnMarkersRequest] = []
        self.waiting: list[tuple[WriteTxnMarkersRequest, Callable[[MarkerCodes], None]]] = []
        self.is_slow = False
        self.silent: SilentPeer | None = None
        """The connection to other brokers; None if they cannot be reached."""
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.coordinator_epochs: list[int] = []

    def write_here(
        self, request: WriteTxnMarkersRequest, done: Callable[[MarkerCodes], None]
    ) -> None:
        self.requests.append(request)
        self.waiting.append((request, done))
        if not self.is_slow:
            self.answer()

    def peer(self, broker_id: int) -> Peer | None:
        return self.silent

    def version(self, broker_id: int) -> int:
        return 2

    def answer(self) -> None:
        """Answer what waits."""
        waiting, self.waiting = self.waiting, []
        for request, done in waiting:
            codes: MarkerCodes = {}
            for marker in request.markers:
                self._write(marker, codes)
            done(codes)

    def _write(self, marker: WritableTxnMarker, codes: MarkerCodes) -> None:
        self.coordinator_epochs.append(marker.coordinator_epoch)
        for topic in marker.topics:
            for index in topic.partition_indexes:
                partition = TopicPartition(topic.name, index)
                code = self.codes.get(partition, ErrorCode.NONE)
                if code is ErrorCode.NONE:
                    self.written.append(
                        (
                            topic.name,
                            index,
                            marker.producer_id,
                            marker.producer_epoch,
                            marker.transaction_result,
                        )
                    )
                codes[marker.producer_id, partition] = code


class Coordination:
    """A node with a transaction coordinator, and requests to it."""

    def __init__(self, level: int = 2, **settings: str) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.clock = FakeClock()
        self.random = FakeRandom(lambda limit: limit - 1)
        self.reports: list[str] = []
        self.leaders = Leaders()
        self.settings = {
            "log.dirs": "/data",
            "transaction.state.log.num.partitions": "2",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.start()
        self.node.controller.write(
            [FeatureLevelRecord(name="transaction.version", feature_level=level)]
        )
        state = transactions_topic(self.node.config.transactions, is_alone=True)
        self._create([state, NewTopic("in", 2, 1), NewTopic("out", 3, 1)])
        self.settle()

    def start(self) -> None:
        """Start the node, or start it again on the same files."""
        ports = Ports(self.files, self.clock, self.random, InlineBackground(), self.reports.append)
        self.node = Node(BrokerConfig(self.settings), [], ports)
        self.node.start()
        self.coordinator: TransactionCoordinator = self.node.transactions
        self.coordinator.markers.routes = self.leaders
        self.node.advance()

    def restart(self) -> None:
        """Start again, and load everything."""
        self.start()
        self.pass_ms(20)

    def _create(self, topics: list[NewTopic]) -> None:
        decision = create_topics(self.node.image, self.node.config, self.random, topics)
        self.node.controller.write(decision.records)

    def create(self, topic: str, num_partitions: int) -> None:
        """Create a topic."""
        self._create([NewTopic(topic, num_partitions, 1)])

    def elect(self, leader: int) -> None:
        """Let a broker lead the partition of the transactional id in a new epoch."""
        topic_id = self.node.image.topics[TRANSACTIONS_TOPIC].topic_id
        change = PartitionChangeRecord(
            partition_id=partition_of(ID, 2), topic_id=topic_id, leader=leader
        )
        self.node.controller.write([change])

    def lead(self, topic: str, partition: int, leader: int) -> None:
        """Let a broker lead a partition."""
        topic_id = self.node.image.topics[topic].topic_id
        change = PartitionChangeRecord(partition_id=partition, topic_id=topic_id, leader=leader)
        self.node.controller.write([change])

    def register(self, broker_id: int, *, fenced: bool) -> None:
        """Register another broker, or register it again."""
        self.node.controller.write(
            [
                RegisterBrokerRecord(
                    broker_id=broker_id, incarnation_id=bytes(16), broker_epoch=1, fenced=fenced
                )
            ]
        )

    # -- time ----------------------------------------------------------------------------

    def settle(self) -> None:
        self.node.settle()

    def pass_ms(self, duration_ms: int, step_ms: int = 1) -> None:
        for _ in range(0, duration_ms, step_ms):
            self.clock.now_ms += step_ms
            self.node.advance()
            self.node.settle()

    # -- requests: they settle unless told otherwise -------------------------------------

    def init(
        self,
        expected: tuple[int, int] | None = None,
        *,
        transactional_id: str = ID,
        timeout_ms: int = TIMEOUT_MS,
        settled: bool = True,
    ) -> Told:
        known = None if expected is None else ProducerIdAndEpoch(*expected)
        request = InitProducer(transactional_id, timeout_ms, known)
        return self._ask(lambda told: self.coordinator.init_producer(request, told), settled)

    def add(
        self,
        producer: tuple[int, int],
        *partitions: tuple[str, int],
        version: int = 2,
        transactional_id: str = ID,
        settled: bool = True,
        may_wait: bool = False,
    ) -> Told:
        request = AddPartitions(
            transactional_id, *producer, [TopicPartition(*each) for each in partitions], version
        )
        return self._ask(
            lambda told: self.coordinator.add_partitions(request, told, may_wait=may_wait), settled
        )

    def verify(self, producer: tuple[int, int], *partitions: tuple[str, int]) -> Told:
        request = AddPartitions(
            ID, *producer, [TopicPartition(*each) for each in partitions], version_of(self)
        )
        return self._ask(lambda told: self.coordinator.verify_partitions(request, told), True)

    def end(
        self,
        producer: tuple[int, int],
        committed: bool,
        *,
        version: int = 2,
        transactional_id: str = ID,
        settled: bool = True,
    ) -> Told:
        request = EndTransaction(transactional_id, *producer, committed, version)
        return self._ask(lambda told: self.coordinator.end_transaction(request, told), settled)

    def _ask(self, ask: Callable[[Told], None], settled: bool) -> Told:
        told = Told()
        try:
            ask(told)
        except ApiError as error:
            told(Outcome(error.code))
        if settled:
            self.settle()
        return told

    # -- state ---------------------------------------------------------------------------

    @property
    def runtime(self) -> ShardRuntime[TransactionShard]:
        return self.coordinator.runtime_of(ID)

    @property
    def transaction(self) -> Transaction:
        return self.runtime.shard.transactions[ID]

    def markers(self) -> list[tuple[str, int, int, int, bool]]:
        """Return the markers written since the last call."""
        written, self.leaders.written = self.leaders.written, []
        return written


def version_of(coordination: Coordination) -> int:
    return coordination.coordinator.level


def partitions_of(transaction: Transaction) -> Iterable[tuple[str, int]]:
    for topic, indexes in transaction.partitions.items():
        for index in sorted(indexes):
            yield topic, index
