"""Transactions of real clients: what consumers with read_committed see, also when brokers die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from ottla.cli.main import main
from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.records.record import build_batch
from ottla.testing import Cluster
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.harness.deadline import eventually

FAST = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200}
TOPIC = "orders"


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    with Cluster(memory=True) as cluster:
        yield cluster


def read(servers: str, topic: str, *, committed: bool, partitions: int = 1) -> list[bytes]:
    """Return all values of a topic, up to where a consumer can read now."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        consumer.assign(
            [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
        )
        values: list[bytes] = []
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = consumer.poll(60)
            assert message is not None, "neither a message nor the end of a partition"
            if message.error():
                ended.add(message.partition())
            else:
                values.append(message.value() or b"")
        return values
    finally:
        consumer.close()


def confluent(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"confluent-{topic}"})
    producer.init_transactions(60)
    for name, commits in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{name}{number}".encode())
        if commits:
            producer.commit_transaction(60)
        else:
            assert producer.flush(60) == 0
            producer.abort_transaction(60)


def kafka_python(servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=f"python-{topic}")
    producer.init_transactions()
    for name, commits in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        for number in range(3):
            producer.send(topic, f"{name}{number}".encode())
        producer.flush()
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def aiokafka(servers: str, topic: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"aio-{topic}")
        await producer.start()
        for name, commits in (("a", True), ("b", False), ("c", True)):
            await producer.begin_transaction()
            for number in range(3):
                await producer.send_and_wait(topic, f"{name}{number}".encode())
            if commits:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        await producer.stop()

    asyncio.run(run())


@pytest.mark.parametrize("write", [confluent, kafka_python, aiokafka])
def test_aborted_transactions_are_not_seen(
    alone: Cluster, write: Callable[[str, str], None]
) -> None:
    topic, servers = f"t-{write.__name__}", alone.bootstrap_servers
    alone.create_topic(topic)
    write(servers, topic)
    values = [f"{name}{number}".encode() for name in "abc" for number in range(3)]
    assert read(servers, topic, committed=False) == values
    assert read(servers, topic, committed=True) == values[:3] + values[6:]
    assert asyncio.run(_read_with_aiokafka(servers, topic, 6)) == values[:3] + values[6:]


async def _read_with_aiokafka(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        return [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(count)]
    finally:
        await consumer.stop()


def test_a_producer_may_be_the_first_to_commit_offsets() -> None:
    """Nobody has looked for the coordinator of a group, so there is no topic for offsets."""
    with Cluster(memory=True) as cluster:
        cluster.create_topic("input")
        asyncio.run(asyncio.wait_for(_commit_offset(cluster.bootstrap_servers), 60))
        asked = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
        consumer = Consumer(asked)
        (found,) = consumer.committed([TopicPartition("input", 0)], timeout=60)
        consumer.close()
        assert found.offset == 5


async def _commit_offset(servers: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="first")
    await producer.start()
    async with producer.transaction():
        offsets = {AioTopicPartition("input", 0): 5}
        await producer.send_offsets_to_transaction(offsets, "g")
    await producer.stop()


def test_an_open_transaction_is_seen_after_its_end(alone: Cluster) -> None:
    servers = alone.bootstrap_servers
    alone.create_topic("open")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("open", b"inside")
    assert producer.flush(60) == 0
    plain = Producer({"bootstrap.servers": servers})
    plain.produce("open", b"behind")
    assert plain.flush(60) == 0
    assert read(servers, "open", committed=True) == []
    assert read(servers, "open", committed=False) == [b"inside", b"behind"]
    producer.commit_transaction(60)
    assert read(servers, "open", committed=True) == [b"inside", b"behind"]


def test_a_hanging_transaction_is_found_and_aborted(capfd: pytest.CaptureFixture[str]) -> None:
    """Without verification a batch can begin a transaction that no coordinator knows."""
    properties = {"transaction.partition.verification.enable": False}
    with Cluster(memory=True, properties=properties) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t")
        plain = Producer({"bootstrap.servers": servers})
        plain.produce("t", b"before")
        assert plain.flush(60) == 0
        begin_unknown_transaction(servers)
        Writer(servers, "t").write(0)
        assert read(servers, "t", committed=True) == [b"before"]
        options = ["--topic", "t", "--bootstrap-server", servers]
        everything = ["find-hanging", *options, "--max-transaction-timeout", "0", "--json"]
        assert main(["transactions", *everything]) == 0
        (found,) = json.loads(capfd.readouterr().out)
        assert (found["producerId"], found["startOffset"]) == (77, 1)
        assert main(["transactions", "abort", *options, "--partition", "0",
                     "--start-offset", "1"]) == 0  # fmt: skip
        assert main(["transactions", *everything]) == 0
        assert json.loads(capfd.readouterr().out) == []
        committed = ["--from-beginning", "--timeout-ms", "2000",
                     "--isolation-level", "read_committed"]  # fmt: skip
        assert main(["consume", "t", *committed, "--bootstrap-server", servers]) == 0
        assert capfd.readouterr().out.split() == ["before", "0.0", "0.1", "0.2"]


def begin_unknown_transaction(servers: str) -> None:
    """Write a batch in a transaction that was never begun with a coordinator."""
    batch = build_batch(
        [(None, b"hanging", 1, ())],
        producer_id=77,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    data = PartitionProduceData(index=0, records=bytes(batch))
    request = ProduceRequest(
        transactional_id="unknown",
        acks=-1,
        timeout=10_000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    with Client(parse_addresses(servers)) as client:
        deadline = client.deadline("writing a batch")
        connection = client.any(deadline)
        connection.send(request, deadline, at_most=11)
        response = connection.receive(ProduceResponse, deadline)
        ((answer,),) = [topic.partition_responses for topic in response.responses]
        assert answer.error_code == 0


class Writer:
    """Writes numbered transactions of three records, each until it is committed."""

    def __init__(self, servers: str, topic: str, partitions: int = 1) -> None:
        self._topic = topic
        self._partitions = partitions
        self._settings = {
            "bootstrap.servers": servers,
            "transactional.id": "writer",
            "transaction.timeout.ms": 20_000,
        }
        self._producer = self._new()

    def _new(self) -> Producer:
        producer = Producer(self._settings)
        producer.init_transactions(60)
        return producer

    def write(self, number: int, between: Callable[[], object] | None = None) -> None:
        for _ in range(20):
            try:
                self._try(number, between)
                return
            except KafkaException as problem:
                error = problem.args[0]
                if error.txn_requires_abort():
                    self._producer.abort_transaction(60)
                else:
                    self._producer = self._new()
                between = None
        raise AssertionError(f"transaction {number} was never committed")

    def _try(self, number: int, between: Callable[[], object] | None) -> None:
        producer = self._producer
        producer.begin_transaction()
        for part in range(3):
            value = b"%d.%d" % (number, part)
            producer.produce(self._topic, value, partition=part % self._partitions)
            if part == 1 and between is not None:
                producer.flush(5)
                between()
        while True:
            try:
                producer.commit_transaction(60)
                return
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise


def test_killed_leaders_and_coordinators_lose_and_repeat_nothing() -> None:
    with Cluster(3, processes=True, memory=True, properties=FAST) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        writer = Writer(cluster.bootstrap_servers, TOPIC, 3)
        number = 0
        for topic in (TOPIC, "__transaction_state", TOPIC):
            writer.write(number)
            index = 0 if topic == TOPIC else _coordinator_partition("writer")
            victim = cluster.leader(topic, index)
            writer.write(number + 1, partial(cluster.kill, victim))
            writer.write(number + 2)
            cluster.start(victim)
            number += 3
        eventually(
            lambda: (
                len(read(cluster.bootstrap_servers, TOPIC, committed=True, partitions=3))
                == 3 * number
            ),
            "every transaction is readable",
        )
        values = read(cluster.bootstrap_servers, TOPIC, committed=True, partitions=3)
        expected = [b"%d.%d" % (each, part) for each in range(number) for part in range(3)]
        assert sorted(values) == sorted(expected)
        for part in range(3):
            mine = [value for value in values if value.endswith(b".%d" % part)]
            assert mine == [b"%d.%d" % (each, part) for each in range(number)]


def _coordinator_partition(transactional_id: str) -> int:
    return partition_of(transactional_id, 50)
