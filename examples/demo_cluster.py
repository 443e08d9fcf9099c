"""The part of the demo with three brokers: the leader is killed under load."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from ottla.testing import Cluster

TOPIC = "payments"
_IN_FLIGHT = 500
_TIMEOUT_S = 60


class Failover:
    """Writes numbers to a partition, kills its leader half-way, and checks what is there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._acked = 0
        self._killed_at: float | None = None
        self.killed = 0
        self.leader = 0
        self.gap_s = 0.0
        """From the kill to the next acknowledged write."""
        cluster.create_topic(TOPIC)

    def run(self, count: int, advance: Callable[[int], None]) -> None:
        """Write `count` numbers with acks=all, and kill the leader after half of them."""
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )
        for number in range(count):
            if number == count // 2:
                producer.flush(_TIMEOUT_S)
                self._kill_leader()
            producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=self._delivered)
            while number - self._acked > _IN_FLIGHT:
                producer.poll(0.005)
            if number % 1000 == 0:
                producer.poll(0)
                advance(self._acked)
        if producer.flush(_TIMEOUT_S):
            raise SystemExit(f"only {self._acked} of {count} writes were acknowledged")
        advance(self._acked)
        self.leader = self._cluster.leader(TOPIC)
        self._check(count)

    def _kill_leader(self) -> None:
        self.killed = self._cluster.leader(TOPIC)
        self._killed_at = time.perf_counter()
        self._cluster.kill(self.killed)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"a write was refused: {error}")
        self._acked += 1
        if self._killed_at is not None and not self.gap_s:
            self.gap_s = time.perf_counter() - self._killed_at

    def _check(self, count: int) -> None:
        """Read everything back: each number once, in order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "group.id": "demo-failover",
                "enable.auto.commit": False,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        expected = 0
        end = time.perf_counter() + _TIMEOUT_S
        while expected < count and time.perf_counter() < end:
            for message in consumer.consume(10_000, timeout=0.2):
                if message.error() is None and int(message.value() or b"-1") != expected:
                    raise SystemExit(f"read {message.value()!r}, expected {expected}")
                expected += message.error() is None
        consumer.close()
        if expected != count:
            raise SystemExit(f"only {expected} of {count} writes are there")
