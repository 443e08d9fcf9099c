"""min.insync.replicas and readiness of real nodes, as librdkafka sees them."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.deadline import eventually
from tests.harness.fault_cluster import NODES, FaultCluster

BEFORE_APPEND = KafkaError.NOT_ENOUGH_REPLICAS
AFTER_APPEND = KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class Writer:
    """Writes with acks=all and never tries again."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "retries": 0,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )

    def begin(self, topic: str) -> list[int]:
        """Send a write; the list gets its error code, 0 if it is acknowledged."""
        codes: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            codes.append(0 if error is None else error.code())

        self._producer.produce(topic, b"value", partition=0, on_delivery=delivered)
        self._producer.poll(0)
        return codes

    def end(self) -> None:
        """Wait until all writes have their answers."""
        assert self._producer.flush(60) == 0

    def write(self, topic: str) -> int:
        """Send a write and return its error code."""
        codes = self.begin(topic)
        self.end()
        return codes[0]


def test_too_few_replicas_are_told_before_and_after_the_append(tmp_path: Path) -> None:
    with FaultCluster(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        other = next(n for n in NODES if n != cluster.controller())
        leader = next(n for n in NODES if n != other)
        topic = NewTopic("pair", 1, replica_assignment=[[leader, other]])
        for created in admin.create_topics([topic]).values():
            created.result(60)
        writer = Writer(cluster.bootstrap_servers)
        eventually(lambda: writer.write("pair") == 0, "both replicas take writes", 60)
        cluster.pause(other)
        waiting = writer.begin("pair")
        writer.end()
        assert waiting == [AFTER_APPEND]
        assert writer.write("pair") == BEFORE_APPEND
        cluster.resume(other)
        eventually(lambda: writer.write("pair") == 0, "the other replica is in sync again", 60)


def test_a_node_that_is_ready_is_unfenced(tmp_path: Path) -> None:
    with FaultCluster(tmp_path) as cluster:
        for restarted in NODES:
            cluster.kill(restarted)
            cluster.start(restarted)
            admin = AdminClient({"bootstrap.servers": cluster.address(restarted), "log_level": 0})
            # A node knows of its own unfencing when the metadata tells; that may be a moment later.
            eventually(
                lambda: restarted in admin.list_topics(timeout=10).brokers,  # noqa: B023
                "a ready node is among the brokers",
            )
