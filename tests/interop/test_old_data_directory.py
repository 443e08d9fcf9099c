"""A data directory that an earlier Ottla left opens, with everything in it.

`ottla-0.1-data.tar.gz` was written before metadata had snapshots and a quorum: three topics (one
deleted), records in every codec, a compacted topic, a changed setting, groups of both protocols.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.harness.confluent import place_of

if TYPE_CHECKING:
    from ottla.testing import Cluster

ARCHIVE = Path(__file__).parent / "ottla-0.1-data.tar.gz"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30


def test_a_directory_of_an_earlier_version_opens(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    cluster = start_cluster(data_dir=tmp_path / "ottla-0.1-data")
    for _ in range(2):  # as the earlier version left it, and as this one did
        check_topics(cluster.bootstrap_servers)
        check_offsets(cluster.bootstrap_servers)
        assert values(cluster.bootstrap_servers, "orders", 2)[:100] == [
            f"value {codec} {number}"
            for partition in range(2)
            for codec in CODECS
            for number in range(partition, 20, 2)
        ]
        assert values(cluster.bootstrap_servers, "kept.compact", 1) == ["v"] * len(CODECS)
        cluster.restart()
    assert produce(cluster.bootstrap_servers, "orders", 1) == 50


def check_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    assert set(topics) == {"orders", "kept.compact", "__consumer_offsets"}
    assert len(topics["orders"].partitions) == 2
    resource = ConfigResource("topic", "orders")
    configs = admin.describe_configs([resource])[resource].result()
    assert configs["segment.ms"].value == "604800001"


def check_offsets(servers: str) -> None:
    for protocol in ("classic", "consumer"):
        consumer = Consumer({"bootstrap.servers": servers, "group.id": f"group-{protocol}"})
        (committed,) = consumer.committed([TopicPartition("orders", 1)], timeout=TIMEOUT_S)
        assert committed.offset == 50
        consumer.close()


def values(servers: str, topic: str, partitions: int) -> list[str]:
    """Return all values of a topic, partition by partition."""
    found = []
    for partition in range(partitions):
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(TIMEOUT_S)) is not None and not message.error():
            value = message.value()
            assert value is not None
            found.append(value.decode())
        consumer.close()
    return found


def produce(servers: str, topic: str, partition: int) -> int:
    """Produce a record; return its offset."""
    offsets: list[int] = []

    def delivered(error: object, message: Message) -> None:
        offsets.append(place_of(message)[2])

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    producer.produce(topic, b"new", partition=partition, on_delivery=delivered)
    producer.flush(TIMEOUT_S)
    (offset,) = offsets
    return offset
