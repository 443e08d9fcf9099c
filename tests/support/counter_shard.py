"""A coordinator of counters: the smallest shard there can be, and a node in memory to run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.host import CoordinatorHost
from ottla.coordinator.runtime.record import (
    CoordinatorRecord,
    RecordKey,
    RecordValue,
    decode_record,
    encode_key,
    encode_value,
)
from ottla.coordinator.runtime.reply import Reply
from ottla.coordinator.runtime.shard import Command, Shard
from ottla.coordinator.runtime.shard_runtime import RuntimeState, ShardRuntime
from ottla.memory_files import MemoryFiles
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.model.errors import ErrorCode
from ottla.ports import Buffer, HelperProcesses, NoHelperProcesses, Ports
from ottla.testing.fakes import FakeClock, FakeRandom, InlineBackground
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.message import Field, Message
from tests.support.decisions import create_topics

TOPIC = "__counters"


class CounterKey(RecordKey):
    __slots__ = ("name",)
    API_KEY = 0
    FIELDS = (Field("name", "string", (0, 0)),)

    def __init__(self, *, name: str = "") -> None:
        self.name = name


class CounterValue(RecordValue):
    __slots__ = ("number",)
    API_KEY = 0
    MAX_VERSION = 0
    FIELDS = (Field("number", "int64", (0, 0)),)

    def __init__(self, *, number: int = 0) -> None:
        self.number = number


class CounterResponse(Message):
    __slots__ = ("error_code", "number")

    def __init__(self, *, number: int = 0, error_code: int = ErrorCode.NONE) -> None:
        self.number = number
        self.error_code = error_code


class CounterShard(Shard):
    """Numbers by name, and requests that wait for a number to be changed."""

    def __init__(
        self, broker: Broker, run: Callable[[Command], None], max_batch_bytes: int
    ) -> None:
        super().__init__(broker, run, max_batch_bytes)
        self.numbers: dict[str, int] = {}
        self.parked: list[Reply] = []
        self.is_loaded = False

    def add(self, name: str, amount: int, reply: Reply) -> list[CoordinatorRecord]:
        """Add to a number, and let those go who wait for a change."""
        number = self.numbers.get(name, 0) + amount
        for waiting in (*self.parked, reply):
            self.answer(waiting, CounterResponse(number=number))
        self.parked.clear()
        return [(CounterKey(name=name), CounterValue(number=number))]

    def replay(self, key: RecordKey, value: RecordValue | None) -> None:
        assert isinstance(key, CounterKey)
        if value is None:
            self.numbers.pop(key.name, None)
        else:
            assert isinstance(value, CounterValue)
            self.numbers[key.name] = value.number

    def loaded(self) -> None:
        self.is_loaded = True

    def close(self, code: ErrorCode) -> None:
        for waiting in self.parked:
            self.answer(waiting, CounterResponse(error_code=code))

    @staticmethod
    def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        key, value = record
        return encode_key(key), None if value is None else encode_value(value)

    @staticmethod
    def decode(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
        return decode_record({0: (CounterKey, CounterValue)}, key, value)

    @staticmethod
    def refuse(response: Message, code: ErrorCode) -> Message:
        return CounterResponse(error_code=code)


class Answer:
    """A reply that remembers what was sent."""

    def __init__(self) -> None:
        self.response: CounterResponse | None = None

    def send(self, response: Message) -> None:
        assert self.response is None, "a reply is sent once"
        assert isinstance(response, CounterResponse)
        self.response = response

    @property
    def number(self) -> int:
        assert self.response is not None
        assert self.response.error_code == ErrorCode.NONE
        return self.response.number

    @property
    def error(self) -> ErrorCode:
        assert self.response is not None
        return ErrorCode(self.response.error_code)


class Counters:
    """A node with the topic of the counters, and the host of its shards."""

    def __init__(self, partitions: int = 1) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.clock = FakeClock()
        self.random = FakeRandom(lambda limit: limit - 1)
        self.reports: list[str] = []
        self.helpers: HelperProcesses = NoHelperProcesses()
        self.start()
        self.create_topic(partitions)

    def start(self) -> None:
        """Start the node, or start it again on the same files."""
        config = BrokerConfig({"log.dirs": "/data"})
        ports = Ports(
            self.files,
            self.clock,
            self.random,
            InlineBackground(),
            self.reports.append,
            helpers=self.helpers,
        )
        self.node = Node(config, [], ports)
        self.node.start()
        self.node.advance()
        self.host = CoordinatorHost(TOPIC, self.node, CounterShard)
        self.host.refresh()

    # -- metadata ------------------------------------------------------------------------

    def create_topic(self, partitions: int = 1) -> None:
        topic = NewTopic(TOPIC, partitions, 1)
        decision = create_topics(self.node.image, self.node.config, self.random, [topic])
        self._write(decision.records)

    def delete_topic(self) -> None:
        self._write([RemoveTopicRecord(topic_id=self.topic_id)])

    def elect(self, leader: int) -> None:
        """Let a broker lead the partition in a new epoch."""
        change = PartitionChangeRecord(partition_id=0, topic_id=self.topic_id, leader=leader)
        self._write([change])

    def _write(self, records: Sequence[Message]) -> None:
        self.node.controller.write(records)
        self.host.refresh()

    @property
    def topic_id(self) -> bytes:
        return self.node.image.topics[TOPIC].topic_id

    # -- time ----------------------------------------------------------------------------

    def settle(self) -> None:
        self.node.settle()

    def pass_ms(self, duration_ms: int) -> None:
        for _ in range(duration_ms):
            self.clock.now_ms += 1
            self.node.advance()
            self.node.settle()

    # -- requests ------------------------------------------------------------------------

    @property
    def runtime(self) -> ShardRuntime[CounterShard]:
        return self.host.runtime_of(0)

    @property
    def state(self) -> RuntimeState:
        return self.host.runtimes[0].state

    def add(self, name: str = "a", amount: int = 1) -> Answer:
        """Add to a number without settling."""
        answer = Answer()
        self.runtime.finish(self.runtime.shard.add(name, amount, answer))
        return answer

    def park(self) -> Answer:
        """Wait for the next change of any number."""
        answer = Answer()
        self.runtime.shard.parked.append(answer)
        return answer

    def read(self, name: str = "a") -> Answer:
        """Ask for a number without settling."""
        answer = Answer()
        number = self.runtime.shard.numbers.get(name, 0)
        self.runtime.answer(answer, CounterResponse(number=number))
        return answer
