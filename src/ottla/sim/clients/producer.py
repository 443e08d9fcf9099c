"""Producers: plain ones that send and forget, idempotent ones that retry until they know."""

from __future__ import annotations

from random import Random as Generator

from ottla.model.errors import ErrorCode
from ottla.sim.clients.client import Client, Environment
from ottla.sim.judges.produce import FIRST_TOPIC_ID, Target, targets_of
from ottla.sim.model.batch import Producer, Sent, damaged, make_sent
from ottla.sim.model.cluster import Place
from ottla.sim.network.exchange import Exchange
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_VERSIONS = (3, 7, 8, 9, 11, 12, 13, 13)
_FIRST_WITH_ZSTD = 7
_MOST_UNACKED = 5
_MASK = 0x7FFFFFFF


class ProducingClient(Client):
    """What both kinds of producers share."""

    def produce(self, targets: list[Target], acks: int) -> None:
        """Send batches, grouped by topic as they come."""
        version = self.chance.choice(_VERSIONS)
        if not all(target.topic_id for target in targets):
            version = min(version, FIRST_TOPIC_ID - 1)
        if any(target.sent.is_zstd for target in targets):
            version = max(version, _FIRST_WITH_ZSTD)
        topics: list[TopicProduceData] = []
        for target in targets:
            data = PartitionProduceData(index=target.partition_index, records=target.sent.payload)
            if topics and topics[-1].name == target.name:
                topics[-1].partition_data.append(data)
            else:
                topics.append(
                    TopicProduceData(
                        name=target.name, topic_id=target.topic_id, partition_data=[data]
                    )
                )
        request = ProduceRequest(acks=acks, timeout=1000, topic_data=topics)
        self.ask(request, version, wants_reply=acks != 0, note=targets)

    def make_sent(self, producer: Producer | None = None) -> Sent:
        profile = self.environment.profile
        sent = make_sent(
            self.environment.new_uid(),
            self.chance,
            self.environment.wall_ms(),
            most_records=profile.most_records,
            most_bytes=profile.most_bytes,
            codec=self.chance.choice((0, 0, 0, 1, 2, 3, 4)),
            producer=producer,
        )
        return self.new_sent(sent)


class PlainProducer(ProducingClient):
    """Sends to several partitions at once, with any acks, sometimes nonsense."""

    def act(self) -> None:
        topics = sorted(self.environment.model.topics)
        self.chance.shuffle(topics)
        targets = [
            target
            for name in topics[: self.chance.choice((1, 1, 2, 3))]
            for target in self._targets(name)
        ]
        if not targets or self.chance.random() < 0.02:
            targets = [Target("no-such-topic", b"n" * 16, 0, self.make_sent())]
        acks = self.chance.choice((1, 1, 1, -1, -1, 0))
        if self.chance.random() < 0.01:
            acks = 5
        self.produce(targets, acks)

    def _targets(self, name: str) -> list[Target]:
        topic = self.environment.model.topics[name]
        count = len(topic.partitions) + (self.chance.random() < 0.02)
        indexes = self.chance.sample(range(count), k=self.chance.randint(1, count))
        return [Target(name, topic.topic_id, index, self._batch()) for index in indexes]

    def _batch(self) -> Sent:
        sent = self.make_sent()
        if self.chance.random() < 0.04:
            return self.new_sent(damaged(sent, self.chance))
        return sent


class Stream:
    """What an idempotent producer knows about one partition it writes to."""

    def __init__(self, place: Place, producer: Producer) -> None:
        self.name = place.topic.name
        self.topic_id = place.topic.topic_id
        self.partition_index = place.partition_index
        self.producer = producer
        self.skipped = 0
        self.unacked: list[Sent] = []
        self.to_resend: list[Sent] = []
        self.acked: list[Sent] = []

    def bump_epoch(self) -> None:
        """Begin again in a new epoch, forgetting what is in doubt (KIP-360)."""
        producer_id, epoch, _ = self.producer
        self.producer = Producer(producer_id, epoch + 1, 0)
        self.unacked.clear()
        self.to_resend.clear()
        self.acked.clear()

    def advance(self, count: int) -> None:
        self.producer = self.producer._replace(
            base_sequence=(self.producer.base_sequence + count) & _MASK
        )


class IdempotentProducer(ProducingClient):
    """Retries what is in doubt, in order; sometimes repeats or skips on purpose."""

    DISCONNECTS = 0.03

    def __init__(self, name: str, environment: Environment, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._producer_id = -1
        self._streams: dict[tuple[str, int], Stream] = {}
        self._epochs: dict[tuple[str, int], int] = {}

    def act(self) -> None:
        if self._producer_id < 0:
            if not self.in_flight:
                self.ask(InitProducerIdRequest(transactional_id=None), self.chance.randint(0, 5))
            return
        place = self.pick_place()
        if place is not None:
            self._write(self._stream(place))

    def _stream(self, place: Place) -> Stream:
        key = place.topic.name, place.partition_index
        stream = self._streams.get(key)
        if stream is None:
            # A batch of an earlier stream may still be on its way: nothing is numbered twice.
            epoch = self._epochs[key] = self._epochs.get(key, -1) + 1
            first = _MASK - 4 if not epoch and self.chance.random() < 0.1 else 0
            producer = Producer(self._producer_id, epoch, first)
            stream = self._streams[key] = Stream(place, producer)
        return stream

    def _write(self, stream: Stream) -> None:
        dice = self.chance.random()
        if stream.to_resend:
            sent = stream.to_resend.pop(0)
        elif dice < 0.1 and stream.acked:
            sent = self.chance.choice(stream.acked[-7:])
        elif dice < 0.13:
            stream.skipped += 1000
            sequence = (stream.producer.base_sequence + stream.skipped) & _MASK
            sent = self.make_sent(stream.producer._replace(base_sequence=sequence))
        elif len(stream.unacked) < _MOST_UNACKED:
            sent = self.make_sent(stream.producer)
            stream.advance(sent.count)
            stream.unacked.append(sent)
        else:
            return
        target = Target(stream.name, stream.topic_id, stream.partition_index, sent)
        self.produce([target], self.chance.choice((1, -1, -1)))

    def received(self, exchange: Exchange) -> None:
        reply = exchange.reply
        if isinstance(reply, InitProducerIdResponse):
            if not reply.error_code:
                self._producer_id = reply.producer_id
            return
        assert isinstance(reply, ProduceResponse)
        (target,) = targets_of(exchange)
        stream = self._streams.get((target.name, target.partition_index))
        if stream is not None and target.sent.producer[:2] == stream.producer[:2]:
            code = reply.responses[0].partition_responses[0].error_code
            self._answered(stream, target.sent, code)

    def _answered(self, stream: Stream, sent: Sent, code: int) -> None:
        if code == 0:
            if sent in stream.unacked:
                stream.unacked.remove(sent)
                stream.acked.append(sent)
        elif code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._retry(stream)
        elif sent in stream.unacked:
            if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                del self._streams[stream.name, stream.partition_index]
            else:
                stream.bump_epoch()
                self._epochs[stream.name, stream.partition_index] += 1

    def disconnected(self, lost: list[Exchange]) -> None:
        for stream in self._streams.values():
            self._retry(stream)
        if self.chance.random() < 0.1:
            self._producer_id = -1
            self._streams.clear()
            self._epochs.clear()

    def _retry(self, stream: Stream) -> None:
        stream.to_resend = list(stream.unacked)
