"""Produce requests whose records a helper process must look at: order, errors, bounds."""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOSPC
from random import Random
from struct import pack

import pytest

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.config.topic import LogConfig
from ottla.controller.topics import NewTopic
from ottla.log.append_rules import MAX_INLINE_BYTES
from ottla.log.log import Log
from ottla.metadata.records import RemoveTopicRecord
from ottla.model.errors import ErrorCode
from ottla.records.batch import scan
from ottla.records.record import build_batch, records_of
from ottla.replication import delayed_appends
from ottla.replication.partition import Partition
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.decisions import create_topics
from tests.support.helper_tasks import Helpers

NOW = 1_700_000_000_000
VERSION = 9
GZIP, ZSTD = 1, 4


class Broker:
    """A node with two topics: `gzip` stores gzip only, `keyed` is compacted."""

    def __init__(self, node: Node, helpers: Helpers) -> None:
        self.node = node
        self.helpers = helpers
        self.connection = Connection("127.0.0.1", "PLAINTEXT")
        for name, settings in (
            ("gzip", {"compression.type": "gzip"}),
            ("keyed", {"cleanup.policy": "compact"}),
            ("plain", {}),
        ):
            topic = NewTopic(name, num_partitions=2, configs=tuple(settings.items()))
            node.controller.write(
                create_topics(node.image, node.config, node.ports.random, [topic]).records
            )

    def partition(self, name: str, index: int = 0) -> Partition:
        topic = self.node.topics.named(name)
        assert topic is not None
        return topic.partitions[index]

    def send(
        self,
        *batches: tuple[str, int, bytes],
        acks: int = -1,
        connection: Connection | None = None,
    ) -> None:
        """Let the node handle a request, and overwrite its buffer when it has settled."""
        topics = [
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=index, records=batch)]
            )
            for name, index, batch in batches
        ]
        request = ProduceRequest(acks=acks, timeout=1000, topic_data=topics)
        body = encoder(ProduceRequest, VERSION)(request)
        frame = bytearray(pack(">hhih", 0, VERSION, 7, 0) + b"\0" + body)
        self.node.advance()
        self.node.handle(connection or self.connection, frame, memoryview(frame), 0, len(frame))
        self.node.settle()
        frame[:] = b"\xee" * len(frame)

    def finish(self, number: int = 0) -> None:
        self.node.advance()
        self.helpers.finish(number)
        self.node.settle()

    def answers(self, connection: Connection | None = None) -> list[PartitionProduceResponse]:
        """Return the results of all partitions in the replies that may be sent."""
        connection = connection or self.connection
        found = []
        for frame in connection.out:
            assert isinstance(frame, bytes)
            response, _ = decoder(ProduceResponse, VERSION)(frame, 9, len(frame))
            found += [p for topic in response.responses for p in topic.partition_responses]
        connection.out.clear()
        return found

    def codes(self) -> list[tuple[int, int]]:
        return [(answer.error_code, answer.base_offset) for answer in self.answers()]

    def values(self, name: str, index: int = 0) -> list[bytes | None]:
        """Return the values in a partition's log, in their order."""
        log = self.partition(name, index).online_log()
        data = b""
        if log.high_watermark:
            piece = log.read(0, 10**8, log.high_watermark, at_least_one=True)
            assert piece is not None
            data = piece.read()
        return [
            record.value
            for batch in scan(data, 0, len(data))
            for record in records_of(data[batch.position : batch.end])
        ]


@pytest.fixture
def broker(start_node: Callable[..., Node]) -> Broker:
    helpers = Helpers()
    return Broker(start_node(helpers=helpers), helpers)


def batch(
    value: bytes, *, codec: int = ZSTD, key: bytes | None = b"k", sequence: int = -1
) -> bytes:
    """Build a batch that a helper must look at, unless its codec is none or gzip."""
    return bytes(
        build_batch(
            [(key, value, NOW, ())],
            codec=codec,
            producer_id=5 if sequence >= 0 else -1,
            producer_epoch=0 if sequence >= 0 else -1,
            base_sequence=sequence,
        )
    )


def test_a_batch_in_another_codec_waits_for_the_helper(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a")))
    assert broker.answers() == []
    assert broker.partition("gzip").online_log().log_end_offset == 0

    broker.finish()

    assert broker.codes() == [(0, 0)]
    assert broker.values("gzip") == [b"a"]
    data = broker.partition("gzip").online_log().read(0, 1000, 1, at_least_one=True)
    assert data is not None
    assert next(scan(data.read(), 0, data.length)).compression == GZIP
    assert broker.partition("gzip").as_leader().delayed is None
    assert broker.node.delayed_bytes == 0


def test_small_plain_batches_are_looked_at_at_once(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a", codec=0)))
    broker.send(("keyed", 0, batch(b"b", codec=0)))
    broker.send(("keyed", 0, batch(b"c", codec=0, key=None)))
    assert broker.codes() == [(0, 0), (0, 0), (ErrorCode.INVALID_RECORD, -1)]
    assert not broker.helpers.waiting


def test_only_so_many_of_them_in_one_wake_up(broker: Broker) -> None:
    value = bytes(MAX_INLINE_BYTES - 200)
    for _ in range(6):
        broker.send(("keyed", 0, batch(value, codec=0)))
    assert len(broker.answers()) == 4
    assert len(broker.helpers.waiting) == 2


def test_large_plain_batches_wait(broker: Broker) -> None:
    broker.send(("keyed", 0, batch(bytes(MAX_INLINE_BYTES), codec=0)))
    broker.send(("keyed", 1, batch(bytes(MAX_INLINE_BYTES), codec=0, key=None)))
    assert broker.answers() == []
    broker.finish(1)
    assert broker.answers() == []  # in the order of requests
    broker.finish()
    good, bad = broker.answers()
    assert (good.error_code, good.base_offset) == (0, 0)
    assert bad.error_code == ErrorCode.INVALID_RECORD
    assert [record.batch_index for record in bad.record_errors] == [0]


def test_later_appends_wait_behind_from_any_connection(broker: Broker) -> None:
    other = Connection("127.0.0.2", "PLAINTEXT")
    broker.send(("gzip", 0, batch(b"a")))
    broker.send(("gzip", 0, batch(b"b", codec=GZIP)), connection=other)
    broker.send(("gzip", 0, batch(b"c")))
    assert broker.answers(other) == []
    broker.finish(1)  # that of c
    assert broker.values("gzip") == []
    broker.finish()
    assert broker.values("gzip") == [b"a", b"b", b"c"]
    assert broker.codes() == [(0, 0), (0, 2)]
    assert [answer.base_offset for answer in broker.answers(other)] == [1]


def test_other_partitions_of_the_request_go_on(broker: Broker) -> None:
    other = Connection("127.0.0.2", "PLAINTEXT")
    broker.send(("gzip", 0, batch(b"a")), ("gzip", 1, batch(b"b", codec=GZIP)))
    assert broker.values("gzip", 1) == [b"b"]
    broker.send(("gzip", 1, batch(b"c", codec=GZIP)), connection=other)
    assert [answer.base_offset for answer in broker.answers(other)] == [1]
    broker.finish()
    assert broker.codes() == [(0, 0), (0, 0)]


def test_sequences_stay_right_when_results_come_in_any_order(broker: Broker) -> None:
    for sequence in range(4):
        broker.send(("gzip", 0, batch(b"%d" % sequence, sequence=sequence)))
    broker.send(("gzip", 0, batch(b"2", sequence=2)))  # a duplicate
    broker.send(("gzip", 0, batch(b"9", sequence=9)))  # a gap
    for number in (4, 2, 0, 2, 1, 0):
        broker.finish(number)
    gap = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert broker.codes() == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 2), gap]
    assert broker.values("gzip") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("seed", range(20))
def test_the_log_has_the_order_of_arrival(broker: Broker, seed: int) -> None:
    chance = Random(seed)
    sent: list[list[bytes]] = [[], []]
    for number in range(40):
        while broker.helpers.waiting and chance.random() < 0.4:
            broker.finish(chance.randrange(len(broker.helpers.waiting)))
        index, codec = chance.randrange(2), chance.choice((0, GZIP, ZSTD))
        connection = Connection("127.0.0.1", "PLAINTEXT")
        value = b"%d" % number
        broker.send(("gzip", index, batch(value, codec=codec)), connection=connection)
        sent[index].append(value)
    while broker.helpers.waiting:
        broker.finish(chance.randrange(len(broker.helpers.waiting)))
    assert [broker.values("gzip", index) for index in (0, 1)] == sent
    assert broker.node.delayed_bytes == 0


def test_acks_1_and_0(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a")), acks=0)
    broker.send(("gzip", 0, batch(b"b")), acks=1)
    broker.finish()
    broker.finish()
    assert broker.codes() == [(0, 1)]
    assert broker.values("gzip") == [b"a", b"b"]


def test_acks_0_closes_the_connection_if_the_batch_is_refused(broker: Broker) -> None:
    broker.send(("keyed", 0, batch(b"a", key=None)), acks=0)
    assert not broker.connection.closing
    broker.finish()
    assert broker.connection.closing


def test_a_helper_that_fails(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a")))
    broker.send(("gzip", 0, batch(b"b", codec=GZIP)))
    broker.helpers.fail()
    broker.node.settle()
    first, second = broker.answers()
    assert first.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "it ended" in (first.error_message or "")
    assert (second.error_code, second.base_offset) == (0, 0)


def test_a_helper_that_takes_no_more(broker: Broker) -> None:
    broker.helpers.is_full = True
    broker.send(("gzip", 0, batch(b"a")))
    broker.send(("gzip", 0, batch(b"b", codec=GZIP)))
    assert broker.codes() == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 0)]


@pytest.mark.interpreted
def test_a_write_that_fails_takes_back_what_was_said_because_of_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(("gzip", 0, batch(b"0", sequence=0)))
    broker.send(("gzip", 0, batch(b"9", sequence=9)))  # a gap, if the first one is written
    broker.finish(1)

    def fail(log: Log, **options: bool) -> None:
        raise OSError(ENOSPC, "on purpose")

    monkeypatch.setattr(Log, "write_queued", fail)
    broker.finish()
    failed = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert broker.codes() == [failed, failed]


def test_batches_behind_are_refused_at_once_if_they_make_no_sense(broker: Broker) -> None:
    damaged = bytearray(batch(b"b", codec=GZIP))
    damaged[-1] ^= 1
    other = Connection("127.0.0.2", "PLAINTEXT")
    broker.send(("gzip", 0, batch(b"a")))
    broker.send(("gzip", 0, bytes(damaged)), connection=other)
    assert [a.error_code for a in broker.answers(other)] == [ErrorCode.CORRUPT_MESSAGE]
    broker.finish()
    assert broker.codes() == [(0, 0)]


def test_a_topic_that_is_deleted_meanwhile(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a")))
    broker.send(("gzip", 0, batch(b"b", codec=GZIP)))
    node = broker.node
    topic_id = node.image.topics["gzip"].topic_id
    node.controller.write([RemoveTopicRecord(topic_id=topic_id)])
    node.settle()
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert broker.codes() == [unknown, unknown]
    assert node.delayed_bytes == 0
    broker.finish()  # nobody waits for it
    assert broker.answers() == []


def test_another_broker_leads_meanwhile(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a")))
    partition = broker.partition("gzip")
    image = broker.node.image.topics["gzip"].partitions[0]
    elsewhere = image._replace(replicas=(1, 2), leader=2, leader_epoch=image.leader_epoch + 1)
    partition.take_role(elsewhere, 1)
    broker.node.settle()
    assert broker.codes() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    back = elsewhere._replace(leader=1, isr=(1,), leader_epoch=image.leader_epoch + 2)
    partition.take_role(back, 1)
    broker.send(("gzip", 0, batch(b"b")))
    broker.finish()  # that of a: for nothing
    assert broker.answers() == []
    broker.finish()
    assert broker.codes() == [(0, 0)]
    assert broker.values("gzip") == [b"b"]


def test_a_log_directory_that_is_lost_meanwhile(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a")))
    broker.send(("gzip", 0, batch(b"b", codec=GZIP)))
    broker.partition("gzip").log = None
    broker.finish()
    offline = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert broker.codes() == [offline, offline]
    assert broker.partition("gzip").as_leader().delayed is None


def test_a_connection_that_closes_meanwhile(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a")))
    broker.node.close_connection(broker.connection)
    broker.finish()
    assert broker.connection.out == []
    assert broker.values("gzip") == [b"a"]


def test_settings_that_change_meanwhile(broker: Broker) -> None:
    broker.send(("gzip", 0, batch(b"a")))
    node = broker.node
    log = broker.partition("gzip").online_log()
    log.reconfigure(LogConfig(compression_type="lz4", cleanup_policy=frozenset({"compact"})))
    broker.finish()
    assert broker.answers() == []
    broker.finish()
    assert broker.codes() == [(0, 0)]
    piece = log.read(0, 1000, 1, at_least_one=True)
    assert piece is not None
    assert next(scan(piece.read(), 0, piece.length)).compression == 3
    assert not node.delayed_bytes


def test_the_brokers_own_batches_keep_their_place(broker: Broker) -> None:
    heard: list[ErrorCode] = []
    partition = broker.partition("keyed")
    broker.send(("keyed", 0, batch(b"a")))
    own = build_batch([(b"k", b"own", NOW, ())])
    broker.node.append_internal(partition, own, heard.append)
    broker.node.settle()
    assert heard == []
    broker.finish()
    assert heard == [ErrorCode.NONE]
    assert broker.values("keyed") == [b"a", b"own"]
    assert not broker.helpers.waiting  # its keys need no check


@pytest.mark.interpreted
def test_a_connection_that_sends_too_much_is_not_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.handlers.produce.PARKED_BYTES", 100)
    for acks in (-1, 0):
        broker.send(("gzip", 0, batch(b"a")), acks=acks)
        assert broker.connection.takes_requests
        broker.send(("gzip", 0, batch(b"b")), acks=acks)
        assert not broker.connection.takes_requests
        broker.finish()
        broker.finish()
        assert broker.connection.takes_requests
        broker.answers()


@pytest.mark.interpreted
def test_too_many_bytes_are_refused(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_appends, "MAX_DELAYED_BYTES", 100)
    broker.send(("gzip", 0, batch(b"a" * 200, codec=0)))  # one alone may wait
    broker.send(("gzip", 1, batch(b"a")))
    broker.send(("gzip", 1, batch(b"b")))
    broker.finish()
    assert broker.codes() == [(0, 0), (0, 0), (ErrorCode.KAFKA_STORAGE_ERROR, -1)]
