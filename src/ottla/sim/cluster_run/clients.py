"""Clients of a cluster: they look for the leader, and try again until they succeed."""

from __future__ import annotations

from random import Random as Generator
from typing import Protocol

from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.records.batch import scan
from ottla.sim.clients.connected_client import ConnectedClient, Run
from ottla.sim.cluster_run.history import History, PartitionKey
from ottla.sim.cluster_run.topics import is_loose, key_of, may_be_deleted
from ottla.sim.model.batch import Producer, Sent, make_sent
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_PATIENCE_MS = 4000.0
_FETCH_VERSION = 12
_LATEST = -1
_TIERED = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "900",
    "file.delete.delay.ms": "500",
}
_RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class ClusterRunOfClients(Run, Protocol):
    """What clients of a cluster ask of the run."""

    history: History
    broker_count: int

    @property
    def image(self) -> MetadataImage:
        """Return the newest metadata that any node has."""
        ...

    def shows_commits(self, number: int, key: PartitionKey) -> bool:
        """Return True if the checkers see on a broker what it has just committed."""
        ...


class ClusterClient(ConnectedClient):
    """Base: one connection to one broker, to another one when that does not help."""

    DISCONNECTS = 0.003
    environment: ClusterRunOfClients

    def __init__(self, name: str, environment: ClusterRunOfClients, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self.broker = chance.randint(1, environment.broker_count)
        self._heard_ms = 0.0

    def think(self) -> None:
        now_ms = self.environment.monotonic_ms()
        if not self.in_flight:
            self._heard_ms = now_ms
        elif now_ms - self._heard_ms > _PATIENCE_MS:
            self.try_elsewhere()
        super().think()
        if self.connection is None:
            self.choose()

    def received(self, exchange: Exchange) -> None:
        self._heard_ms = self.environment.monotonic_ms()

    def choose(self) -> None:
        """Use any broker with the next connection."""
        self.broker = self.chance.randint(1, self.environment.broker_count)

    def try_elsewhere(self) -> None:
        """Give up this connection."""
        self.hang_up()
        self.choose()

    def check_code(self, exchange: Exchange, code: int) -> None:
        """Raise Violation if an error has no reason in a cluster whose parts fail."""
        if code not in _RETRIED:
            raise Violation(f"{exchange!r}: answered with {ErrorCode(code).name}")


class TopicCreator(ClusterClient):
    """Creates the topics, each until it is there."""

    THINK_MS = (20.0, 100.0, 500.0)

    def __init__(
        self,
        name: str,
        environment: ClusterRunOfClients,
        chance: Generator,
        topics: list[CreatableTopic],
    ) -> None:
        super().__init__(name, environment, chance)
        self._topics = topics

    def act(self) -> None:
        if self._topics:
            self.ask(CreateTopicsRequest(topics=self._topics[:1], timeout=3000), 7)

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        assert isinstance(exchange.reply, CreateTopicsResponse)
        (topic,) = exchange.reply.topics
        if topic.error_code:
            self.check_code(exchange, topic.error_code)
        if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._topics = [each for each in self._topics if each.name != topic.name]
        else:
            self.try_elsewhere()


def new_topic(
    name: str,
    partitions: int,
    min_insync_replicas: int,
    *,
    segment_bytes: int | None = None,
    is_compacted: bool = False,
    is_tiered: bool = False,
) -> CreatableTopic:
    """Return a topic with three replicas. If it is tiered, brokers keep only its newest records."""
    configs = {"min.insync.replicas": str(min_insync_replicas)}
    if segment_bytes is not None:
        configs["internal.segment.bytes"] = str(segment_bytes)
    if is_compacted:
        configs["cleanup.policy"] = "compact"
    if is_tiered:
        configs |= _TIERED
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=3,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )


class ClusterProducer(ClusterClient):
    """An idempotent producer with acks=all, of one partition: it resends until it is answered."""

    THINK_MS: tuple[float, ...] = (1.0, 5.0, 20.0, 100.0)
    _NEVER_MORE = 5

    def __init__(
        self,
        name: str,
        environment: ClusterRunOfClients,
        chance: Generator,
        key: PartitionKey,
        pipelining: int,
    ) -> None:
        super().__init__(name, environment, chance)
        self.key = key
        self._pipelining = pipelining
        self._producer = Producer()
        self._unacked: list[Sent] = []
        self._to_send: list[Sent] = []
        self.is_finishing = False
        """Set when nothing new is to be sent."""
        self.acked = 0

    @property
    def pipelining(self) -> int:
        return self._pipelining

    def most_in_flight(self) -> int:
        """Return 1 before the first acknowledgement.

        A broker takes any sequence of a producer that it does not know, as Kafka's does: if the
        first batch were refused and the second one accepted, the first could never follow.
        """
        return self._pipelining if self.acked else 1

    @property
    def is_done(self) -> bool:
        """True if everything that was sent is acknowledged."""
        return not self._unacked

    def slow_down(self) -> None:
        """Send less, so that followers can catch up with the leader."""
        self.THINK_MS = (100.0, 500.0)

    def act(self) -> None:
        if self._producer.producer_id < 0:
            if not self.in_flight:
                self.ask(InitProducerIdRequest(transactional_id=None), 4)
            return
        if self._to_send:
            sent = self._to_send.pop(0)
        elif self.is_finishing or len(self._unacked) >= self._NEVER_MORE:
            return
        else:
            sent = self._new_batch()
        data = PartitionProduceData(index=self.key[1], records=sent.payload)
        topic, version = self._topic_data(data)
        self.ask(ProduceRequest(acks=-1, timeout=2000, topic_data=[topic]), version, note=[sent])

    def _topic_data(self, data: PartitionProduceData) -> tuple[TopicProduceData, int]:
        """Return the part of a request with the topic, and the request's version."""
        return TopicProduceData(name=self.key[0], partition_data=[data]), 11

    def _new_batch(self) -> Sent:
        uid, now_ms = self.environment.new_uid(), self.environment.wall_ms()
        sent = make_sent(
            uid, self.chance, now_ms, most_records=3, most_bytes=50, producer=self._producer
        )
        sequence = self._producer.base_sequence + sent.count
        self._producer = self._producer._replace(base_sequence=sequence)
        self._unacked.append(sent)
        return sent

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        reply = exchange.reply
        if isinstance(reply, InitProducerIdResponse):
            if reply.error_code:
                self.check_code(exchange, reply.error_code)
                self.try_elsewhere()
            else:
                self._producer = Producer(reply.producer_id, reply.producer_epoch, 0)
            return
        assert isinstance(reply, ProduceResponse)
        assert isinstance(exchange.note, list)
        (sent,) = exchange.note
        answer = reply.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            self._acknowledged(sent, answer.base_offset)
            self.acked += 1
            self._unacked = [each for each in self._unacked if each is not sent]
            return
        self.check_code(exchange, answer.error_code)
        leader = answer.current_leader.leader_id
        self.try_elsewhere()
        if leader > 0:
            self.broker = leader

    def _acknowledged(self, sent: Sent, base_offset: int) -> None:
        is_seen = self.environment.shows_commits(self.broker, self.key)
        self.environment.history.acknowledged(self.key, sent.uid, base_offset, is_seen=is_seen)

    def disconnected(self, lost: list[Exchange]) -> None:
        self._to_send = list(self._unacked)


class TemporaryProducer(ClusterProducer):
    """Writes to a partition of a topic that may be deleted, then to another one.

    It names topics by their ids, so that nothing goes to a new topic of the same name.
    """

    def __init__(self, name: str, environment: ClusterRunOfClients, chance: Generator) -> None:
        super().__init__(name, environment, chance, ("", 0), 2)
        self._topic_id = ZERO_UUID

    @property
    def is_done(self) -> bool:
        return not self._unacked or self._is_gone()

    def _is_gone(self) -> bool:
        return self._topic_id not in self.environment.image.topics_by_id

    def act(self) -> None:
        if self._is_gone():
            self._choose_topic()
        if not self._is_gone():
            super().act()

    def _choose_topic(self) -> None:
        """Begin with another topic, as another producer."""
        topics = self.environment.image.topics
        found = [topics[name] for name in sorted(topics) if may_be_deleted(name)]
        if self.in_flight or not found or self.is_finishing:
            return
        topic = self.chance.choice(found)
        index = self.chance.randrange(len(topic.partitions))
        self._topic_id = topic.topic_id
        self.key = key_of(topic.name, topic.topic_id, index)
        self._producer = Producer()
        self._unacked, self._to_send, self.acked = [], [], 0

    def _topic_data(self, data: PartitionProduceData) -> tuple[TopicProduceData, int]:
        return TopicProduceData(topic_id=self._topic_id, partition_data=[data]), 13

    def _acknowledged(self, sent: Sent, base_offset: int) -> None:
        # Nobody saw what was committed in the wake-up in which the topic was deleted.
        is_unseen = self._is_gone() and base_offset >= self.environment.history.log(self.key).end
        if not (is_loose(self.key[0]) or is_unseen):
            super()._acknowledged(sent, base_offset)

    def check_code(self, exchange: Exchange, code: int) -> None:
        if code == ErrorCode.UNKNOWN_TOPIC_ID:
            return
        # Unclean elections lose batches, and the sequences with them.
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_loose(self.key[0]):
            self._topic_id = ZERO_UUID
            return
        super().check_code(exchange, code)


class ClusterConsumer(ClusterClient):
    """Reads one partition from its beginning; what it reads must be committed."""

    THINK_MS = (1.0, 20.0, 100.0)
    isolation_level = 0
    allows_gaps = False

    def __init__(
        self,
        name: str,
        environment: ClusterRunOfClients,
        chance: Generator,
        key: PartitionKey,
    ) -> None:
        super().__init__(name, environment, chance)
        self.key = key
        self.position = 0
        self.is_steady = False
        """Set when the reader is to read to the end."""
        self._latest = (-1, 0)
        """The leader epoch and the end that ListOffsets returned last."""

    def act(self) -> None:
        name, index = self.key
        if self.chance.random() < 0.1:
            asked = ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
            topic = ListOffsetsTopic(name=name, partitions=[asked])
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=self.isolation_level, topics=[topic]
            )
            self.ask(request, 7)
            return
        partition = FetchPartition(
            partition=index,
            fetch_offset=self.position,
            partition_max_bytes=self.chance.choice((1, 1000, 1_000_000)),
        )
        fetch = FetchRequest(
            max_wait=self.chance.choice((0, 50, 500)),
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=self.isolation_level,
            session_epoch=-1,
            topics=[FetchTopic(topic=name, partitions=[partition])],
        )
        self.ask(fetch, _FETCH_VERSION)

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        reply = exchange.reply
        if isinstance(reply, ListOffsetsResponse):
            self._take_latest(exchange, reply)
            return
        assert isinstance(reply, FetchResponse)
        answer = reply.responses[0].partitions[0]
        if answer.error_code:
            self.check_code(exchange, answer.error_code)
            leader = answer.current_leader.leader_id
            self.try_elsewhere()
            if leader > 0:
                self.broker = leader
            return
        request = exchange.request
        assert isinstance(request, FetchRequest)
        if request.topics[0].partitions[0].fetch_offset != self.position:
            return  # the reader has begun again meanwhile
        history = self.environment.history.log(self.key)
        if answer.high_watermark > history.end:
            raise Violation(
                f"{exchange!r}: was told the high watermark {answer.high_watermark};"
                f" {history.end} is committed"
            )
        self.read(answer, bytes(answer.records or b""))

    def read_once_more(self) -> None:
        """Begin again, and read to the end."""
        self.position, self.is_steady = 0, True

    def read(self, answer: PartitionData, data: bytes) -> None:
        """Take the batches of an answer."""
        history = self.environment.history.log(self.key)
        for batch in scan(data, 0, len(data)):
            if batch.base_offset > self.position and not self.allows_gaps:
                raise Violation(f"{self.name}: {batch.base_offset} comes after {self.position}")
            if batch.next_offset <= self.position:
                raise Violation(f"{self.name}: {batch} comes again after {self.position}")
            if batch.next_offset > history.end:
                raise Violation(f"{self.name} reads {batch}; {history.end} is committed")
            history.compare(self.name, batch, data[batch.position : batch.end])
            self.position = batch.next_offset

    def _take_latest(self, exchange: Exchange, reply: ListOffsetsResponse) -> None:
        answer = reply.topics[0].partitions[0]
        if answer.error_code:
            self.check_code(exchange, answer.error_code)
            self.try_elsewhere()
            return
        epoch, offset = self._latest
        if answer.leader_epoch >= epoch:
            if answer.offset < offset:
                raise Violation(f"{exchange!r}: {answer.offset} is told after {offset}")
            self._latest = answer.leader_epoch, answer.offset
