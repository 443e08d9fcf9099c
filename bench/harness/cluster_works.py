"""Workloads on two warm clusters, one of which is paused: throughput, latency, many partitions."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewTopic

from harness.cluster import NODES
from harness.cluster_state import await_brokers
from harness.problem import BenchError
from harness.scale import Scale
from harness.target import Target
from harness.topics import KEPT, create_topic, delete_topic, submit_topic
from harness.transaction_works import PARTITIONS, Commits, ProduceInTransactions
from harness.works import Figures, Latency, LibrdkafkaProduce, Work, consume, run_fill

CONSUMED_BYTES = 300_000_000
SETTLING_BYTES = 200 << 20
WRITTEN_TIMEOUT_S = 120.0
FLUSH_S = 0.2
ENDING_SIGNALS = (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DELETED_S = 3.0
"""The files of a deleted topic are removed within this time."""


@dataclass(frozen=True)
class ReplicatedThroughput(LibrdkafkaProduce):
    """A librdkafka producer with acks=all, and a consumer of other data for the CPU figure."""

    filled: dict[Target, float] = field(default_factory=dict)

    @property
    def settling_bytes(self) -> int:
        """Less than for one broker: each partition keeps 64 MiB here, and there are three of it."""
        return self.partitions * min(self.scale.settling_bytes, SETTLING_BYTES)

    @property
    def _consumed(self) -> str:
        return f"{self.name}-consumed"

    def prepare(self, target: Target) -> None:
        """Create both topics and fill the one to consume."""
        create_topic(
            target.port, self._consumed, 1, KEPT, replicas=self.replicas, others=target.ports[1:]
        )
        report = run_fill(target, self._consumed, self.acks, CONSUMED_BYTES, 1024)
        self.filled[target] = report["bytes"]
        super().prepare(target)

    def measure(self, target: Target) -> Figures:
        """Return the megabytes acknowledged per second, and the CPU of all brokers per GB."""
        figures = super().measure(target)
        consumed = consume(target, self._consumed, self.filled[target], 1)
        consume_cpu = consumed["cpu_s"] / (consumed["bytes"] / 1e9)
        figures["cluster-cpu"] = figures["_cpu_s_per_gb"] + consume_cpu
        figures["_consume_cpu_s_per_gb"] = consume_cpu
        return figures

    def finish(self, target: Target) -> None:
        """Delete both topics."""
        super().finish(target)
        delete_topic(target.port, self._consumed)
        time.sleep(DELETED_S)


@dataclass
class CreatedPartitions:
    """One topic of very many partitions, with a write to each of them."""

    name: str
    scale: Scale
    _made: int = 0

    @property
    def rounds(self) -> int:
        """The number of rounds of the scale."""
        return self.scale.rounds

    def prepare(self, target: Target) -> None:
        """Do nothing: the topic is what is measured."""

    def measure(self, target: Target) -> Figures:
        """Return the seconds from the request to the last acknowledgement."""
        self._made += 1
        topic = f"{self.name}-{self._made}"
        partitions = self.scale.created_partitions
        began = time.perf_counter()
        submit_topic(target.port, NewTopic(topic, partitions, replication_factor=NODES))
        created_s = time.perf_counter() - began
        write_to_each(target.ports_text, topic, partitions)
        figures = {self.name: time.perf_counter() - began, "_answered_s": created_s}
        delete_topic(target.port, topic)
        time.sleep(DELETED_S)
        return figures

    def finish(self, target: Target) -> None:
        """Do nothing: each round deletes its topic."""


def write_to_each(ports: str, topic: str, partitions: int) -> None:
    """Write one message with acks=all to each partition. Raise BenchError if one is refused."""
    problems: list[KafkaError] = []
    done = 0

    def told(error: KafkaError | None, message: Message) -> None:
        nonlocal done
        done += 1
        if error is not None:
            problems.append(error)

    servers = ",".join(f"127.0.0.1:{port}" for port in ports.split(","))
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "broker.address.family": "v4",
            "acks": "all",
            "linger.ms": 5,
            "log_level": 3,
        }
    )
    for partition in range(partitions):
        producer.produce(topic, b"x" * 100, partition=partition, on_delivery=told)
    left = _flush(producer, WRITTEN_TIMEOUT_S)
    if left or problems or done != partitions:
        reason = problems[0] if problems else f"{left} not acknowledged"
        raise BenchError(f"not every partition of {topic} took a write: {reason}")


def _flush(producer: Producer, timeout_s: float) -> int:
    """Wait until all messages are acknowledged or have failed; return how many are left.

    Signals wait meanwhile: what their handlers raise must not come out of a callback of the client.
    """
    deadline = time.monotonic() + timeout_s
    left = len(producer)
    while left and time.monotonic() < deadline:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
        try:
            left = producer.flush(FLUSH_S)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return left


def warm_cluster_works(scale: Scale) -> list[Work]:
    """Return these workloads in the order of the table."""
    return [
        ReplicatedThroughput("cluster-produce", scale, 6, 1024, acks="all", replicas=NODES),
        Latency("cluster-latency", scale, rate=1000, acks="all", replicas=NODES),
        Commits("cluster-transactions", scale, PARTITIONS, commit="cluster-commit", replicas=NODES),
        ProduceInTransactions("cluster-in-transactions", scale, PARTITIONS, replicas=NODES),
        CreatedPartitions("create-partitions", scale),
    ]


def warm_up_cluster(target: Target, scale: Scale) -> None:
    """Run each kind of load for a short time, so that the JVM compiles its code."""
    await_brokers(target.ports, WRITTEN_TIMEOUT_S)
    brief = replace(scale.for_warm_up(), load_s=scale.warm_up_s / 2)
    works: list[Work] = [
        ReplicatedThroughput("warm-up-produce", brief, 6, 1024, acks="all", replicas=NODES),
        Latency("warm-up-latency", brief, rate=1000, acks="all", replicas=NODES),
    ]
    for work in works:
        work.prepare(target)
        work.measure(target)
        work.finish(target)
