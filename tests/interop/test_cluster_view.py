"""How the cluster looks to an administrator: brokers, log directories, sizes."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka as ck
import kafka
from confluent_kafka.admin import AdminClient

from tests.harness.batches import batch_of
from tests.harness.raw import RawConnection, split_address
from tests.harness.topics import produce


def test_describe_cluster_agrees_with_metadata(raw: RawConnection, bootstrap_servers: str) -> None:
    described = raw.request("describe_cluster", 1, endpoint_type=1)
    metadata = raw.request("metadata", 12, topics=[])
    (broker,) = described.brokers
    assert (broker.host, broker.port) == split_address(bootstrap_servers)
    assert described.cluster_id == metadata.cluster_id
    assert len(described.cluster_id) == 22
    assert described.controller_id == metadata.controller_id == broker.broker_id
    assert [each.node_id for each in metadata.brokers] == [broker.broker_id]


def test_confluent_describes_the_cluster(raw: RawConnection, bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    described = admin.describe_cluster().result(15)
    assert described.cluster_id == raw.request("metadata", 12, topics=[]).cluster_id
    (node,) = described.nodes
    assert (node.host, node.port) == split_address(bootstrap_servers)
    assert described.controller.id == node.id


def test_kafka_python_describes_the_cluster(raw: RawConnection, bootstrap_servers: str) -> None:
    with kafka.KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        described = admin.describe_cluster()
    assert described["cluster_id"] == raw.request("metadata", 12, topics=[]).cluster_id


def test_describe_log_dirs(raw: RawConnection, make_topic: Callable[..., str]) -> None:
    topic = make_topic(2)
    batch = batch_of([b"x" * 1_000])
    for _ in range(3):
        produce(raw, topic, batch, partition=1)
    answer = raw.request("describe_log_dirs", 4, topics=[{"topic": topic, "partitions": [0, 1]}])
    assert answer.error_code == 0
    sizes: dict[int, int] = {}
    for directory in answer.results:
        assert directory.error_code == 0
        assert directory.total_bytes == -1 or directory.total_bytes >= directory.usable_bytes > 0
        for found in directory.topics:
            assert found.name == topic
            sizes |= {each.partition_index: each.partition_size for each in found.partitions}
    assert sizes == {0: 0, 1: 3 * len(batch)}


def test_describe_all_log_dirs(raw: RawConnection, topic: str) -> None:
    answer = raw.request("describe_log_dirs", 4, topics=None)
    named = {found.name for directory in answer.results for found in directory.topics}
    assert topic in named


def test_kafka_python_describes_log_dirs(topic: str, bootstrap_servers: str) -> None:
    with kafka.KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        described = admin.describe_log_dirs()
    assert topic in repr(described)


def test_kafka_python_describes_producers(topic: str, bootstrap_servers: str) -> None:
    with kafka.KafkaProducer(
        bootstrap_servers=bootstrap_servers, enable_idempotence=True
    ) as writer:
        writer.send(topic, b"v", partition=0).get(10)
        with kafka.KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
            place = kafka.TopicPartition(topic, 0)
            described = admin.describe_producers([place])
    (state,) = described[place].active_producers
    assert (state.producer_epoch, state.last_sequence) == (0, 0)


def test_confluent_lists_offsets(raw: RawConnection, topic: str, bootstrap_servers: str) -> None:
    for stamp in (1_000, 3_000, 2_000):
        produce(raw, topic, batch_of([b"v"], timestamp_ms=stamp))
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    place = ck.TopicPartition(topic, 0)

    def offset(spec: ck.admin.OffsetSpec) -> int:
        return int(admin.list_offsets({place: spec})[place].result(15).offset)

    assert offset(ck.admin.OffsetSpec.earliest()) == 0  # type: ignore[no-untyped-call]
    assert offset(ck.admin.OffsetSpec.latest()) == 3  # type: ignore[no-untyped-call]
    assert offset(ck.admin.OffsetSpec.max_timestamp()) == 1  # type: ignore[no-untyped-call]
    assert offset(ck.admin.OffsetSpec.for_timestamp(2_500)) == 1
