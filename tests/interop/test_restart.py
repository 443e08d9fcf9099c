"""A broker that restarts under its clients: they go on, and nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.harness.batches import batch_of
from tests.harness.deadline import Deadline
from tests.harness.model import EARLIEST, Client, Producer
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, produce, topic_id_of

if TYPE_CHECKING:
    from ottla.testing import Cluster

OUT_OF_ORDER_SEQUENCE_NUMBER = 45


@pytest.fixture
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    return start_cluster()


def test_topics_configs_and_records_survive(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap_servers, "kept", 3, {"retention.ms": "123456"})
    with RawConnection(cluster.bootstrap_servers) as raw:
        for partition in range(3):
            produce(raw, "kept", batch_of([b"%d" % partition] * 5), partition=partition)
        before = raw.request("metadata", 12, topics=None)
        topic_id = topic_id_of(raw, "kept")

    address = cluster.bootstrap_servers
    cluster.restart()
    assert cluster.bootstrap_servers == address
    with RawConnection(cluster.bootstrap_servers) as raw:
        after = raw.request("metadata", 12, topics=None)
        assert after.cluster_id == before.cluster_id
        assert topic_id_of(raw, "kept") == topic_id
        (configs,) = raw.request(
            "describe_configs",
            4,
            resources=[
                {
                    "resource_type": 2,
                    "resource_name": "kept",
                    "configuration_keys": ["retention.ms"],
                }
            ],
        ).results
        assert configs.configs[0].value == "123456"
        for partition in range(3):
            answer = produce(raw, "kept", batch_of([b"more"]), partition=partition)
            assert answer.base_offset == 5


def test_producers_are_remembered(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap_servers, "kept")

    def send(producer_id: int, sequence: int):  # type: ignore[no-untyped-def]
        with RawConnection(cluster.bootstrap_servers) as raw:
            return produce(
                raw,
                "kept",
                batch_of([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence),
            )

    with RawConnection(cluster.bootstrap_servers) as raw:
        producer_id = raw.request("init_producer_id", 4).producer_id
    for sequence in range(3):
        assert send(producer_id, sequence).base_offset == sequence
    cluster.restart()
    assert (send(producer_id, 2).error_code, send(producer_id, 2).base_offset) == (0, 2)
    assert send(producer_id, 5).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(producer_id, 3).base_offset == 3
    with RawConnection(cluster.bootstrap_servers) as raw:
        assert raw.request("init_producer_id", 4).producer_id != producer_id


def test_deleted_records_and_topics_stay_deleted(cluster: Cluster) -> None:
    for name in ("cut", "gone"):
        create_topic(cluster.bootstrap_servers, name)
    with RawConnection(cluster.bootstrap_servers) as raw:
        for _ in range(5):
            produce(raw, "cut", batch_of([b"v"]))
        raw.request(
            "delete_records",
            2,
            timeout=10_000,
            topics=[{"name": "cut", "partitions": [{"partition_index": 0, "offset": 3}]}],
        )
        raw.request("delete_topics", 5, topic_names=["gone"], timeout=10_000)
    cluster.restart()
    with RawConnection(cluster.bootstrap_servers) as raw:
        assert [each.name for each in raw.request("metadata", 12, topics=None).topics] == ["cut"]
        answer = raw.request(
            "list_offsets",
            7,
            replica_id=-1,
            topics=[{"name": "cut", "partitions": [{"partition_index": 0, "timestamp": -2}]}],
        )
        assert answer.topics[0].partitions[0].offset == 3


def test_a_cluster_in_memory_forgets(start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster(memory=True)
    create_topic(cluster.bootstrap_servers, "short-lived")
    cluster.restart()
    with RawConnection(cluster.bootstrap_servers) as raw:
        assert raw.request("metadata", 12, topics=None).topics == ()


class Stream:
    """Sends numbered messages from a thread of its own until it is told to stop."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[bytes] = []
        self.failed: list[tuple[bytes, int]] = []
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            values = [b"%06d" % (number + each) for each in range(20)]
            number += len(values)
            for value in values:
                self._producer.send(self._topic, value)
            for value, ack in zip(values, self._producer.flush(60), strict=True):
                if ack.error == 0:
                    self.acknowledged.append(value)
                else:
                    self.failed.append((value, ack.error))

    def wait_for(self, more: int) -> None:
        """Return once that many more messages are acknowledged."""
        goal = len(self.acknowledged) + more
        deadline = Deadline(30)
        while len(self.acknowledged) < goal:
            assert not deadline.passed, f"{len(self.acknowledged)} of {goal} acknowledged"
            assert self._thread.is_alive()
            time.sleep(0.01)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.mark.slow
def test_clients_go_on_over_restarts(client: Client, cluster: Cluster) -> None:
    create_topic(cluster.bootstrap_servers, "stream")
    with (
        client.producer(cluster.bootstrap_servers, idempotent=True) as producer,
        client.consumer(cluster.bootstrap_servers) as consumer,
    ):
        consumer.assign({("stream", 0): EARLIEST})
        stream = Stream(producer, "stream")
        try:
            for _ in range(3):
                stream.wait_for(100)
                consumer.take(20)
                cluster.restart()
            stream.wait_for(100)
        finally:
            stream.finish()
        consumer.seek("stream", 0, EARLIEST)
        values: list[bytes | None] = []
        while len(values) < len(stream.acknowledged):
            values += [message.value for message in consumer.take(1, 30)]
    assert stream.failed == []
    assert values == stream.acknowledged, "in order, once each, nothing missing"
