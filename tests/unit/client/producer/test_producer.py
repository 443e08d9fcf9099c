from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.client.errors import ClientError, Refused, UnsupportedByBroker
from ottla.client.producer.producer import BATCH_BYTES, Producer
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.records.batch import Batch, parse_header
from ottla.records.record import Record, records_of
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.metadata import MetadataResponseTopic
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.scripted_broker import Connect, FakeBroker, StartBroker

KAFKA_2_0 = {
    ApiKey.PRODUCE: (0, 6),
    ApiKey.METADATA: (0, 6),
    ApiKey.API_VERSIONS: (0, 2),
}


class Log:
    """Accepts produce requests. `verdict` returns the error code of a batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Batch, list[Record]]] = []
        self.attempts: list[tuple[int, Batch]] = []
        self.acks: set[int] = set()
        self.verdict: Callable[[Batch], ErrorCode] = lambda batch: ErrorCode.NONE

    def handle(self, request: ProduceRequest) -> ProduceResponse | None:
        self.acks.add(request.acks)
        (topic,) = request.topic_data
        answers = [self._append(data.index, data.records) for data in topic.partition_data]
        if request.acks == 0:
            return None
        found = TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=answers
        )
        return ProduceResponse(responses=[found])

    def _append(self, partition: int, data: bytes | None) -> PartitionProduceResponse:
        assert data is not None
        batch = parse_header(data, 0)
        self.attempts.append((partition, batch))
        code = self.verdict(batch)
        if code == ErrorCode.NONE:
            self.batches.append((partition, batch, records_of(data)))
        return PartitionProduceResponse(index=partition, error_code=code)

    def values(self, partition: int) -> list[bytes | None]:
        return [r.value for at, _, records in self.batches if at == partition for r in records]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def broker(fake_broker: FakeBroker, log: Log) -> FakeBroker:
    fake_broker.handlers[ApiKey.PRODUCE] = log.handle
    fake_broker.handlers[ApiKey.INIT_PRODUCER_ID] = lambda _: InitProducerIdResponse(
        producer_id=4711, producer_epoch=2
    )
    fake_broker.add_topic("events", 3)
    return fake_broker


def test_messages_arrive_with_all_they_carry(
    broker: FakeBroker, connect: Connect, log: Log
) -> None:
    producer = Producer(connect(broker.address), "events", codec=4)
    producer.send(b"key", b"value", 1234, [("h", b"1"), ("h", None)], partition=2)
    producer.send(None, None, 1235, partition=2)
    producer.flush()
    ((partition, batch, records),) = log.batches
    assert (partition, batch.compression, producer.acknowledged) == (2, 4, 2)
    assert records == [
        (0, 1234, b"key", b"value", (("h", b"1"), ("h", None))),
        (1, 1235, None, None, ()),
    ]


def test_acks_all_is_idempotent_with_sequences_that_go_on(
    broker: FakeBroker, connect: Connect, log: Log
) -> None:
    producer = Producer(connect(broker.address), "events")
    for count in (2, 3):
        for _ in range(count):
            producer.send(None, b"x", 0, partition=1)
        producer.flush()
    assert producer.is_idempotent
    assert log.acks == {-1}
    assert [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        for _, batch, _ in log.batches
    ] == [(4711, 2, 0), (4711, 2, 2)]


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acks_are_not_idempotent(
    broker: FakeBroker, connect: Connect, log: Log, acks: int
) -> None:
    client = connect(broker.address)
    producer = Producer(client, "events", acks=acks)
    producer.send(None, b"x", 0, partition=0)
    producer.flush()
    client.metadata([], client.deadline("a round trip, so that acks 0 has arrived"))
    assert (log.acks, producer.acknowledged, producer.is_idempotent) == ({acks}, 1, False)
    assert [batch.producer_id for _, batch, _ in log.batches] == [-1]


def test_a_broker_older_than_idempotence_and_topic_ids(
    start_broker: StartBroker, connect: Connect, log: Log
) -> None:
    broker = start_broker(KAFKA_2_0)
    broker.handlers[ApiKey.PRODUCE] = log.handle
    broker.add_topic("events", 1, topic_id=ZERO_UUID)
    producer = Producer(connect(broker.address), "events")
    producer.send(None, b"x", 0)
    producer.flush()
    assert broker.versions_asked()["ProduceRequest"] == 6
    assert log.values(0) == [b"x"]


def test_a_broker_older_than_zstd(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(KAFKA_2_0)
    broker.add_topic("events", 1)
    with pytest.raises(UnsupportedByBroker, match="does not support zstd"):
        Producer(connect(broker.address), "events", codec=4)


def test_a_topic_without_an_id_is_named(broker: FakeBroker, connect: Connect, log: Log) -> None:
    broker.add_topic("old", 1, topic_id=ZERO_UUID)
    producer = Producer(connect(broker.address), "old")
    producer.send(None, b"x", 0)
    producer.flush()
    assert broker.versions_asked()["ProduceRequest"] == 12
    assert log.values(0) == [b"x"]


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_a_batch_is_sent_again_as_it_was(
    broker: FakeBroker, connect: Connect, log: Log, error: ErrorCode
) -> None:
    log.verdict = lambda batch: error if len(log.attempts) < 3 else ErrorCode.NONE
    producer = Producer(connect(broker.address), "events")
    producer.send(None, b"x", 0, partition=0)
    producer.flush()
    assert len({batch.crc for _, batch in log.attempts}) == 1
    assert (len(log.attempts), log.values(0)) == (3, [b"x"])


def test_a_lost_acknowledgement_is_sent_again(
    broker: FakeBroker, connect: Connect, log: Log
) -> None:
    answers = iter([ConnectionError()])

    def hang_up_once(request: ProduceRequest) -> ProduceResponse | None:
        response = log.handle(request)
        for error in answers:
            raise error
        return response

    broker.handlers[ApiKey.PRODUCE] = hang_up_once
    producer = Producer(connect(broker.address), "events")
    producer.send(None, b"x", 0, partition=0)
    producer.flush()
    assert [batch.base_sequence for _, batch in log.attempts] == [0, 0]
    assert producer.acknowledged == 1


def test_a_duplicate_counts_as_stored(broker: FakeBroker, connect: Connect, log: Log) -> None:
    log.verdict = lambda batch: ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    producer = Producer(connect(broker.address), "events")
    producer.send(None, b"x", 0, partition=0)
    producer.flush()
    assert producer.acknowledged == 1


def test_a_batch_that_is_too_large_is_cut_and_keeps_its_order(
    broker: FakeBroker, connect: Connect, log: Log
) -> None:
    log.verdict = lambda batch: (
        ErrorCode.MESSAGE_TOO_LARGE if batch.record_count > 2 else ErrorCode.NONE
    )
    producer = Producer(connect(broker.address), "events")
    expected = [b"%d" % i for i in range(9)]
    for value in expected:
        producer.send(None, value, 0, partition=0)
    producer.send(None, b"other", 0, partition=1)
    producer.flush()
    assert log.values(0) == expected
    assert log.values(1) == [b"other"]
    sequences = [(b.base_sequence, b.record_count) for at, b, _ in log.batches if at == 0]
    assert [first for first, _ in sequences] == [
        sum(count for _, count in sequences[:i]) for i in range(len(sequences))
    ]


def test_a_message_that_is_too_large_by_itself(
    broker: FakeBroker, connect: Connect, log: Log
) -> None:
    log.verdict = lambda batch: ErrorCode.MESSAGE_TOO_LARGE
    producer = Producer(connect(broker.address), "events")
    producer.send(None, b"x", 0, partition=0)
    with pytest.raises(Refused, match="events-0: MESSAGE_TOO_LARGE"):
        producer.flush()
    assert producer.acknowledged == 0


def test_an_error_that_stays_ends_with_the_deadline(
    broker: FakeBroker, connect: Connect, log: Log
) -> None:
    log.verdict = lambda batch: ErrorCode.NOT_ENOUGH_REPLICAS
    producer = Producer(connect(broker.address, timeout_ms=1000), "events")
    producer.send(None, b"x", 0, partition=0)
    with pytest.raises(Refused, match="NOT_ENOUGH_REPLICAS"):
        producer.flush()


def test_full_batches_go_by_themselves(broker: FakeBroker, connect: Connect, log: Log) -> None:
    producer = Producer(connect(broker.address), "events")
    value = bytes(BATCH_BYTES // 4)
    for _ in range(10):
        producer.send(None, value, 0, partition=0)
    assert producer.acknowledged >= 6
    producer.flush()
    assert log.values(0) == [value] * 10


def test_a_partition_there_is_not(broker: FakeBroker, connect: Connect) -> None:
    producer = Producer(connect(broker.address), "events")
    with pytest.raises(ClientError, match="no partition 3: its partitions are 0 to 2"):
        producer.send(None, b"x", 0, partition=3)


def test_a_topic_that_the_broker_does_not_create(
    broker: FakeBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.topics.route.CREATION_TIMEOUT_MS", 100)
    with pytest.raises(Refused, match="no topic nope: create it with `ottla topics create nope`"):
        Producer(connect(broker.address), "nope")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bad topic", "'bad topic' contains one or more characters other than ASCII"),
        ("a.b", "another topic's name differs only in"),
    ],
)
def test_a_topic_that_cannot_be_is_told_why(
    broker: FakeBroker, connect: Connect, name: str, words: str
) -> None:
    refused = MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    broker.topics[name] = refused
    with pytest.raises(Refused, match=f"'{name}' is not a valid topic name: {words}"):
        Producer(connect(broker.address), name)
