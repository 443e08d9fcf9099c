"""What the records of a Produce request may be like, and the errors that clients get."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from struct import pack

import pytest

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.controller.topics import NewTopic
from ottla.log.append_rules import INLINE_STEPS_PER_MS, MAX_INLINE_BYTES, MAX_INLINE_STEPS
from ottla.model.errors import ErrorCode
from ottla.records.batch import HEADER_SIZE, seal
from ottla.records.compression import recompress
from ottla.records.record import NewRecord, build_batch
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

ZSTD = 4
CODECS = range(5)


class Broker:
    """A node with a topic of two partitions, and what it answers to Produce."""

    def __init__(self, node: Node, helpers: Helpers) -> None:
        self.node = node
        self.helpers = helpers
        self.now = node.wall_ms
        self.connection = Connection("127.0.0.1", "PLAINTEXT")
        for name, configs in (
            ("t", {}),
            ("stamped", {"message.timestamp.type": "LogAppendTime"}),
            ("recent", {"message.timestamp.before.max.ms": "1000"}),
        ):
            topic = NewTopic(name, num_partitions=2, configs=tuple(configs.items()))
            node.controller.write(
                create_topics(node.image, node.config, node.ports.random, [topic]).records
            )

    def send(
        self,
        records: bytes,
        *,
        version: int = 9,
        topic: str = "t",
        partition: int = 0,
        transactional_id: str | None = None,
    ) -> None:
        data = [PartitionProduceData(index=partition, records=records)]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=1,
            timeout=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        body = encoder(ProduceRequest, version)(request)
        tags = b"\0" if version >= 9 else b""
        frame = bytearray(pack(">hhih", 0, version, 7, 0) + tags + body)
        self.node.handle(self.connection, frame, memoryview(frame), 0, len(frame))
        self.node.settle()

    def answers(self, version: int = 9) -> list[PartitionProduceResponse]:
        found = []
        for frame in self.connection.out:
            assert isinstance(frame, bytes)
            start = 9 if version >= 9 else 8
            response, _ = decoder(ProduceResponse, version)(frame, start, len(frame))
            found += [p for topic in response.responses for p in topic.partition_responses]
        self.connection.out.clear()
        return found

    def answer(self, records: bytes, version: int = 9, **options: str) -> PartitionProduceResponse:
        """Return what the broker says to a batch, at once or after its helper has looked at it."""
        self.send(records, version=version, **options)  # type: ignore[arg-type]
        while self.helpers.waiting:
            self.helpers.finish()
            self.node.settle()
        (answer,) = self.answers(version)
        return answer

    def end_offset(self) -> int:
        topic = self.node.topics.named("t")
        assert topic is not None
        return topic.partitions[0].online_log().log_end_offset


@pytest.fixture
def broker(start_node: Callable[..., Node]) -> Broker:
    helpers = Helpers()
    node = start_node(helpers=helpers)
    node.advance()
    return Broker(node, helpers)


def records_of_sizes(count: int, now: int) -> list[NewRecord]:
    chance = Random(count)
    return [(None, b"v" * chance.randint(1, 50), now, ()) for _ in range(count)]


def sealed(batch: bytearray) -> bytes:
    seal(batch, 0, len(batch))
    return bytes(batch)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 3, 300, 6000])
def test_good_batches_of_all_codecs(broker: Broker, codec: int, count: int) -> None:
    batch = build_batch(records_of_sizes(count, broker.now), codec=codec)
    answer = broker.answer(bytes(batch))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert broker.end_offset() == count


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 3, 300, 6000])
def test_garbage_with_a_good_crc(broker: Broker, codec: int, count: int) -> None:
    batch = build_batch(records_of_sizes(count, broker.now), codec=codec)
    batch[HEADER_SIZE:] = Random(codec).randbytes(len(batch) - HEADER_SIZE)
    answer = broker.answer(sealed(batch))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message
    assert broker.end_offset() == 0


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 3, 300, 6000])
@pytest.mark.parametrize("claimed", [-1, 1, 2**31 - 1])
def test_a_record_count_that_lies(broker: Broker, codec: int, count: int, claimed: int) -> None:
    batch = build_batch(records_of_sizes(count, broker.now), codec=codec)
    claimed = claimed if claimed > 1 else count + claimed
    batch[23:27] = (claimed - 1).to_bytes(4, "big", signed=True)
    batch[57:61] = claimed.to_bytes(4, "big")
    answer = broker.answer(sealed(batch))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert broker.end_offset() == 0


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("codec", [0, ZSTD])
@pytest.mark.parametrize("count", [70, 6000])
def test_the_index_of_the_bad_record(broker: Broker, version: int, codec: int, count: int) -> None:
    records = records_of_sizes(count, broker.now)
    batch = build_batch(records)
    at = len(build_batch(records[:60]))
    batch[at + 3] ^= 2  # its offset delta, after length, attributes and timestamp delta
    batch = recompress(batch, 0, len(batch), codec)
    answer = broker.answer(sealed(batch), version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [bad.batch_index for bad in answer.record_errors] == [60]
    assert answer.record_errors[0].batch_index_error_message


def test_only_what_takes_long_goes_to_the_helper(broker: Broker) -> None:
    equal = [(None, b"v" * 50, broker.now, ()) for _ in range(16_000)]
    few = records_of_sizes(MAX_INLINE_STEPS // 2, broker.now)
    for records in (equal, few):
        broker.send(bytes(build_batch(records)))
        assert not broker.helpers.waiting
    assert len(broker.answers()) == 2
    many = records_of_sizes(MAX_INLINE_STEPS + 100, broker.now)
    broker.send(bytes(build_batch(many)))
    assert len(broker.helpers.waiting) == 1
    assert broker.answers() == []


def test_only_so_many_records_in_one_wake_up(broker: Broker) -> None:
    batch = bytes(build_batch(records_of_sizes(2000, broker.now)))
    for number in range(5):
        broker.send(batch, partition=number % 2)
    assert INLINE_STEPS_PER_MS < 5 * 2000
    assert len(broker.answers()) == 3
    assert len(broker.helpers.waiting) == 2
    while broker.helpers.waiting:
        broker.helpers.finish()
        broker.node.settle()
    assert [answer.error_code for answer in broker.answers()] == [0, 0]


def test_small_compressed_batches_are_checked_at_once_unless_they_become_large(
    broker: Broker,
) -> None:
    small = build_batch([(b"k", b"v" * 100, broker.now, ())], codec=ZSTD)
    broker.send(bytes(small))
    assert not broker.helpers.waiting
    bomb = build_batch([(b"k", bytes(10**6), broker.now, ())], codec=ZSTD)
    assert len(bomb) < MAX_INLINE_BYTES
    broker.send(bytes(bomb))
    assert len(broker.helpers.waiting) == 1
    large = build_batch([(b"k", Random(1).randbytes(20_000), broker.now, ())], codec=ZSTD)
    broker.send(bytes(large), partition=1)
    assert len(broker.helpers.waiting) == 2


@pytest.mark.interpreted
def test_a_bomb_is_refused(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.records.validation.VALIDATED_LIMIT", 10**6)
    bomb = build_batch([(b"k", bytes(2 * 10**6), broker.now, ())], codec=ZSTD)
    assert broker.answer(bytes(bomb)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [0, ZSTD])
@pytest.mark.parametrize("count", [5, 6000])
def test_timestamps_out_of_range_are_told_by_record(broker: Broker, codec: int, count: int) -> None:
    records = records_of_sizes(count, broker.now)
    records[1] = (None, b"late", broker.now + 10**9, ())
    records[3] = (None, b"late", broker.now + 10**9 + 1, ())
    answer = broker.answer(bytes(build_batch(records, codec=codec)))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [bad.batch_index for bad in answer.record_errors] == [1, 3]
    assert str(broker.now + 10**9) in (answer.record_errors[0].batch_index_error_message or "")


def test_a_record_in_the_middle_that_is_too_old(broker: Broker) -> None:
    times = (0, 0, -2000, 0)
    records = [(None, b"v", broker.now + time, ()) for time in times]
    batch = bytes(build_batch(records))
    answer = broker.answer(batch, topic="recent")
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [bad.batch_index for bad in answer.record_errors] == [2]
    assert broker.answer(batch, topic="t").error_code == 0


def test_the_timestamp_type_is_the_brokers(broker: Broker) -> None:
    records = records_of_sizes(3, broker.now)
    batch = build_batch(records, timestamp_type=1)
    answer = broker.answer(bytes(batch), topic="stamped")
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [bad.batch_index for bad in answer.record_errors] == [0, 1, 2]
    assert broker.answer(bytes(build_batch(records)), topic="stamped").error_code == 0


@pytest.mark.parametrize("version", [3, 6, 7, 8])
def test_zstd_needs_version_7(broker: Broker, version: int) -> None:
    batch = build_batch([(None, b"v", broker.now, ())], codec=ZSTD)
    expected = 0 if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert broker.answer(bytes(batch), version).error_code == expected
    gzip = build_batch([(None, b"v", broker.now, ())], codec=1)
    assert broker.answer(bytes(gzip), version).error_code == 0


def test_batches_of_transactions(broker: Broker) -> None:
    batch = build_batch(
        [(None, b"v", broker.now, ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    without_id = broker.answer(bytes(batch))
    assert without_id.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    unknown_id = broker.answer(bytes(batch), transactional_id="x")
    assert unknown_id.error_code == ErrorCode.NOT_ENOUGH_REPLICAS  # there is no coordinator
    plain = build_batch([(None, b"v", broker.now, ())])
    assert broker.answer(bytes(plain), transactional_id="x").error_code == 0


def test_control_batches_are_refused(broker: Broker) -> None:
    batch = build_batch([(bytes(4), bytes(6), broker.now, ())], is_control=True)
    assert broker.answer(bytes(batch)).error_code == ErrorCode.INVALID_RECORD
