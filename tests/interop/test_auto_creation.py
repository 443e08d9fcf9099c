"""Topics made on first use, when the broker and the client both allow it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.testing import Cluster
from tests.harness.deadline import eventually
from tests.harness.model import EARLIEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import metadata_of

UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC_EXCEPTION = 17


def test_a_producer_makes_its_topic(
    client: Client, unused_name: str, bootstrap_servers: str
) -> None:
    with client.producer(bootstrap_servers) as producer:
        producer.send(unused_name, b"first")
        (ack,) = producer.flush()
    assert (ack.error, ack.offset) == (0, 0)
    with client.consumer(bootstrap_servers) as consumer:
        consumer.assign({(unused_name, 0): EARLIEST})
        assert consumer.take(1)[0].value == b"first"


def test_metadata_makes_a_topic_only_when_asked(raw: RawConnection, unused_name: str) -> None:
    (found,) = metadata_of(raw, unused_name).topics
    assert found.error_code == UNKNOWN_TOPIC_OR_PARTITION

    def ask() -> int:
        (found,) = raw.request(
            "metadata", 12, topics=[{"name": unused_name}], allow_auto_topic_creation=True
        ).topics
        assert found.error_code in (0, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE)
        return len(found.partitions)

    eventually(lambda: ask() == 1, "the topic is there with num.partitions partitions")


def test_a_bad_name_is_not_made(raw: RawConnection) -> None:
    (found,) = raw.request(
        "metadata", 12, topics=[{"name": "not a name"}], allow_auto_topic_creation=True
    ).topics
    assert found.error_code == INVALID_TOPIC_EXCEPTION


def test_it_can_be_forbidden(start_cluster: Callable[..., Cluster], unused_name: str) -> None:
    cluster = start_cluster({"auto.create.topics.enable": "false"}, memory=True)
    with RawConnection(cluster.bootstrap_servers) as raw:
        for _ in range(3):
            (found,) = raw.request(
                "metadata", 12, topics=[{"name": unused_name}], allow_auto_topic_creation=True
            ).topics
            assert found.error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert raw.request("metadata", 12, topics=None).topics == ()


def test_a_client_fails_where_it_is_forbidden(
    client: Client, start_cluster: Callable[..., object], unused_name: str
) -> None:
    cluster = start_cluster({"auto.create.topics.enable": "false"}, memory=True)
    with client.producer(
        cluster.bootstrap_servers,  # type: ignore[attr-defined]
        delivery_timeout_ms=1_000,
    ) as producer:
        producer.send(unused_name, b"v")
        (ack,) = producer.flush()
    assert ack.error != 0


def test_num_partitions_is_taken(start_cluster: Callable[..., Cluster], unused_name: str) -> None:
    cluster = start_cluster({"num.partitions": "7"}, memory=True)
    with RawConnection(cluster.bootstrap_servers) as raw:

        def count() -> int:
            (found,) = raw.request(
                "metadata", 12, topics=[{"name": unused_name}], allow_auto_topic_creation=True
            ).topics
            return len(found.partitions)

        eventually(lambda: count() == 7, "seven partitions")
