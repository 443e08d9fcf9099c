"""A tiered topic on real brokers with a directory as object store, which are killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.topics.reassignments import alter_reassignments
from ottla.model import ids
from ottla.testing import Cluster
from ottla.tier_reader import open_topic

DEADLINE_S = 120
TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "20000",
    "local.retention.bytes": "20000",
    "file.delete.delay.ms": "0",
}


def settings(tmp_path: Path) -> dict[str, str | int]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.url": f"file:{tmp_path}/cold",
        "remote.log.manager.task.interval.ms": 100,
        "log.retention.check.interval.ms": 200,
        "log.initial.task.delay.ms": 0,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
        "replica.lag.time.max.ms": 5000,
    }


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Cluster]:
    """Yield one broker in a process of its own."""
    started = Cluster(processes=True, data_dir=tmp_path / "data", properties=settings(tmp_path))
    with started:
        started.create_topic("t", configs=TOPIC_CONFIG)
        yield started


class Writer:
    """Writes numbered records, and notes at which offsets they were acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 5,
                "message.timeout.ms": 1000 * DEADLINE_S,
            }
        )

    def write(self, count: int) -> None:
        """Begin to write records."""
        for _ in range(count):
            value = b"%08d" % self._number + b"x" * 400
            self._number += 1
            self._producer.produce("t", value, partition=0, on_delivery=self._delivered)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        assert self._producer.flush(DEADLINE_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert isinstance(value, bytes)
        self.acknowledged[offset] = value


def read_all(cluster: Cluster) -> dict[int, bytes]:
    """Return all records of the topic by offset, in the order of their offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found: dict[int, bytes] = {}
    last = -1
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"nothing comes after offset {last}"
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                break
            assert error.retriable(), error
            continue
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert offset > last, "records come once, in order"
        assert isinstance(value, bytes)
        found[offset] = value
        last = offset
    consumer.close()
    return found


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def manifests(tmp_path: Path) -> int:
    return len(list((tmp_path / "cold").glob("t-*/0/*.manifest")))


def local_segments(tmp_path: Path, directory: str = "") -> list[int]:
    """Return the base offsets of the segments on a broker's disk."""
    return sorted(int(path.stem) for path in (tmp_path / "data" / directory / "t-0").glob("*.log"))


def is_settled(tmp_path: Path) -> bool:
    """Return True if all objects in the store belong to segments with a manifest."""
    names = [path.name for path in (tmp_path / "cold").glob("t-*/0/*-*.*")]
    whole = {name.rpartition(".")[0] for name in names if name.endswith(".manifest")}
    return bool(whole) and all(name.rpartition(".")[0] in whole for name in names)


def test_a_broker_is_killed_while_it_copies(broker: Cluster, tmp_path: Path) -> None:
    """Everything that was acknowledged is read back, and the store has no leftovers."""
    writer = Writer(broker)
    for _ in range(3):
        copied = manifests(tmp_path)
        writer.write(500)
        eventually(lambda copied=copied: manifests(tmp_path) > copied + 1)  # type: ignore[misc]
        broker.kill()
        broker.start(1)
    writer.write(200)
    writer.finish()
    eventually(lambda: local_segments(tmp_path)[0] > 1000)
    eventually(lambda: is_settled(tmp_path))
    assert read_all(broker) == writer.acknowledged
    remote = open_topic(f"file:{tmp_path}/cold", "t").partition(0)
    read = {record.offset: record.value for record in remote.records()}
    expected = {o: v for o, v in writer.acknowledged.items() if o < remote.next_offset}
    assert read == expected, "a reader without a broker sees the same records"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield three brokers, of which two have replicas of the topic."""
    started = Cluster(3, processes=True, data_dir=tmp_path / "data", properties=settings(tmp_path))
    with started:
        config = {**TOPIC_CONFIG, "min.insync.replicas": "1"}
        started.create_topic("t", replication_factor=2, configs=config)
        yield started


def replicas_of(cluster: Cluster) -> tuple[int, list[int]]:
    """Return the leader and the replicas of the topic's partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partition = admin.list_topics("t", timeout=60).topics["t"].partitions[0]
    return partition.leader, sorted(partition.replicas)


def test_leaders_change_and_a_new_replica_takes_its_state_from_the_tier(
    cluster: Cluster, tmp_path: Path
) -> None:
    writer = Writer(cluster)
    writer.write(500)
    eventually(lambda: manifests(tmp_path) > 3)
    killed, replicas = replicas_of(cluster)
    cluster.kill(killed)
    writer.write(500)
    copied = manifests(tmp_path)
    eventually(lambda: manifests(tmp_path) > copied + 3)
    cluster.start(killed)
    writer.finish()
    (other,) = {1, 2, 3} - set(replicas)
    eventually(lambda: all(local_segments(tmp_path, f"broker-{n}")[0] > 500 for n in replicas))
    with Client(parse_addresses(cluster.bootstrap_servers)) as client:
        assert (
            alter_reassignments(client, {ids.TopicPartition("t", 0): [other]}).popitem()[1] is None
        )
    eventually(lambda: replicas_of(cluster) == (other, [other]))
    assert local_segments(tmp_path, f"broker-{other}")[0] > 500, "older records were not copied"
    writer.write(200)
    writer.finish()
    eventually(lambda: local_segments(tmp_path, f"broker-{other}")[0] > 1000)
    assert read_all(cluster) == writer.acknowledged
    eventually(lambda: is_settled(tmp_path))
