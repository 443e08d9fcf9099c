"""The producer with a real broker: rows arrive once, in order, in the right partition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.errors import Refused
from ottla.client.settings import ClientSettings
from ottla.records.compression import CODECS
from ottla.testing import Cluster
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.partitioner import NoSuchPartition
from pyspark_ottla.sink.producer import Producer
from pyspark_ottla.sink.producer_pool import producer_for
from pyspark_ottla.sink.send_queues import RecordTooLarge

TIMEOUT_S = 30


def create(servers: str, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    named = {name.replace("_", "."): text for name, text in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(TIMEOUT_S)


def values(servers: str, topic: str, partitions: int, count: int) -> list[list[bytes]]:
    """Return the values of each partition in order, `count` in all."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    try:
        while sum(map(len, found)) < count:
            messages = consumer.consume(count, 5)
            assert messages, f"only {sum(map(len, found))} of {count}"
            for message in messages:
                assert message.error() is None, message.error()
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                found[partition].append(value)
        assert consumer.consume(1, 0.2) == []
    finally:
        consumer.close()
    return found


def store(producer: Producer, batch: pyarrow.RecordBatch) -> None:
    producer.add(batch)
    producer.flush()


def rows(first: int, end: int, **columns: object) -> pyarrow.RecordBatch:
    return pyarrow.record_batch(
        {"value": pyarrow.array([b"%08d" % n for n in range(first, end)]), **columns}
    )


@pytest.fixture
def settings(kafka_bootstrap_servers: str, kafka_topic: str) -> Callable[..., SinkSettings]:
    def make(client_id: str = "test", **settings: Any) -> SinkSettings:
        client = ClientSettings(kafka_bootstrap_servers, client_id)
        return SinkSettings(client, topic=kafka_topic, **settings)

    return make


@pytest.fixture
def open_producer(settings: Callable[..., SinkSettings]) -> Iterator[Callable[..., Producer]]:
    producers: list[Producer] = []

    def start(**given: Any) -> Producer:
        producers.append(Producer(settings(**given)))
        return producers[-1]

    yield start
    for producer in producers:
        producer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_several_partitions(
    open_producer: Callable[..., Producer],
    kafka_bootstrap_servers: str,
    kafka_topic: str,
    codec: str,
) -> None:
    create(kafka_bootstrap_servers, kafka_topic, 3)
    producer = open_producer(codec=CODECS[codec], batch_bytes=2000)
    partition = pyarrow.array([n % 3 for n in range(1000)], pyarrow.int32())
    for start in range(0, 5000, 1000):
        producer.add(rows(start, start + 1000, partition=partition))
    producer.flush()
    assert producer.rows == {kafka_topic: 5000}
    found = values(kafka_bootstrap_servers, kafka_topic, 3, 5000)
    wanted = [b"%08d" % n for n in range(5000)]
    # A thousand is not a multiple of three: each batch of rows starts at partition 0 again.
    assert sorted(value for part in found for value in part) == wanted
    assert all(part == sorted(part) for part in found)


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_every_acks(
    open_producer: Callable[..., Producer],
    kafka_bootstrap_servers: str,
    kafka_topic: str,
    acks: int,
) -> None:
    create(kafka_bootstrap_servers, kafka_topic, 1)
    producer = open_producer(acks=acks, idempotent=acks == -1, batch_bytes=1000)
    producer.add(rows(0, 1000))
    producer.flush()
    (found,) = values(kafka_bootstrap_servers, kafka_topic, 1, 1000)
    assert found == [b"%08d" % n for n in range(1000)]


def test_a_topic_is_made_on_demand(
    open_producer: Callable[..., Producer], kafka_bootstrap_servers: str, kafka_topic: str
) -> None:
    producer = open_producer()
    producer.add(rows(0, 10))
    producer.flush()
    assert values(kafka_bootstrap_servers, kafka_topic, 1, 10) == [[b"%08d" % n for n in range(10)]]


def test_a_batch_the_topic_does_not_take_is_cut(
    open_producer: Callable[..., Producer], kafka_bootstrap_servers: str, kafka_topic: str
) -> None:
    create(kafka_bootstrap_servers, kafka_topic, 1, max_message_bytes="3000")
    producer = open_producer(batch_bytes=20000)
    for start in range(0, 5000, 1000):
        producer.add(rows(start, start + 1000))
    producer.flush()
    (found,) = values(kafka_bootstrap_servers, kafka_topic, 1, 5000)
    assert found == [b"%08d" % n for n in range(5000)]


def test_records_that_are_too_large(
    open_producer: Callable[..., Producer], kafka_bootstrap_servers: str, kafka_topic: str
) -> None:
    create(kafka_bootstrap_servers, kafka_topic, 1)
    large = pyarrow.record_batch({"value": pyarrow.array([b"x" * 700_000, b"y"])})
    producer = open_producer()
    producer.add(large)  # more than a batch, less than a request
    producer.flush()
    assert producer.rows == {kafka_topic: 2}
    with pytest.raises(RecordTooLarge, match=r"takes 7000\d\d bytes.*max\.request\.size=500000"):
        open_producer(max_request_bytes=500_000, batch_bytes=100_000).add(large)
    larger = pyarrow.record_batch({"value": pyarrow.array([b"x" * 2_000_000])})
    refused = open_producer(max_request_bytes=3_000_000)
    with pytest.raises(RecordTooLarge, match=r"record of 20000\d\d bytes.*max\.message\.bytes"):
        store(refused, larger)


def test_new_partitions_are_noticed_when_a_row_names_one(
    open_producer: Callable[..., Producer], kafka_bootstrap_servers: str, kafka_topic: str
) -> None:
    from confluent_kafka.admin import NewPartitions

    create(kafka_bootstrap_servers, kafka_topic, 1)
    producer = open_producer()
    producer.add(rows(0, 5))
    second = rows(5, 6, partition=pyarrow.array([1], pyarrow.int32()))
    with pytest.raises(NoSuchPartition, match="0 to 0"):
        producer.add(second)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap_servers})
    admin.create_partitions([NewPartitions(kafka_topic, 2)])[kafka_topic].result(TIMEOUT_S)
    producer.add(second)
    producer.flush()
    assert list(map(len, values(kafka_bootstrap_servers, kafka_topic, 2, 6))) == [5, 1]


def test_memory_is_bounded_by_waiting(
    open_producer: Callable[..., Producer], kafka_bootstrap_servers: str, kafka_topic: str
) -> None:
    create(kafka_bootstrap_servers, kafka_topic, 8)
    producer = open_producer(buffer_bytes=200_000, batch_bytes=16_384)
    key = pyarrow.array([b"%d" % n for n in range(1000)])
    for start in range(0, 50_000, 1000):
        producer.add(rows(start, start + 1000, key=key))
        assert producer._sender.queues.queued_bytes <= 100_000 + 16_384
        assert producer._open_bytes <= 100_000 + 16_384
    producer.flush()
    assert producer.rows == {kafka_topic: 50_000}


def test_a_broker_that_goes_away_and_comes_back_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "t", 2)
        client = ClientSettings(servers)
        producer = Producer(SinkSettings(client, topic="t", batch_bytes=4000, retry_backoff_ms=20))
        key = pyarrow.array([b"%d" % n for n in range(1000)])

        def restart() -> None:
            for _ in range(3):
                cluster.restart()

        mishaps = threading.Thread(target=restart)
        mishaps.start()
        total = 0
        while mishaps.is_alive() or total < 20_000:
            producer.add(rows(total, total + 1000, key=key))
            total += 1000
        mishaps.join()
        producer.flush()
        producer.close()
        found = values(servers, "t", 2, total)
    assert all(part == sorted(part) for part in found)
    assert sorted(value for part in found for value in part) == [b"%08d" % n for n in range(total)]


def test_a_broker_that_stays_away(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        create(cluster.bootstrap_servers, "t", 1)
        client = ClientSettings(cluster.bootstrap_servers)
        producer = Producer(SinkSettings(client, topic="t", delivery_timeout_ms=300))
        producer.add(rows(0, 10))
        producer.flush()
        producer.add(rows(10, 20))
        cluster.stop()
        with pytest.raises(Refused, match=r"t-0 was not written after \d+ attempts"):
            producer.flush()
        producer.close()


def test_producers_are_used_again_unless_they_failed(
    settings: Callable[..., SinkSettings], kafka_bootstrap_servers: str, kafka_topic: str
) -> None:
    create(kafka_bootstrap_servers, kafka_topic, 1)
    wanted = settings(client_id=kafka_topic)
    with producer_for(wanted) as first:
        first.add(rows(0, 5))
    assert first.rows == {kafka_topic: 5}
    with producer_for(wanted) as second:
        assert second is first
        assert second.rows == {}
        second.add(rows(5, 8))
    assert second.rows == {kafka_topic: 3}
    with pytest.raises(NoSuchPartition), producer_for(wanted) as third:
        third.add(rows(0, 1, partition=pyarrow.array([9], pyarrow.int32())))
    with producer_for(wanted) as fourth:
        assert fourth is not first
    fourth.close()
