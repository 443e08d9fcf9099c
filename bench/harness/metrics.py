"""The figures of the table: their names, whether higher or lower is better, and their goals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Better(Enum):
    """Whether a higher or a lower figure is better."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True)
class Metric:
    """One row. `at_least` and `aim` are ratios Ottla / Kafka, or None if there is no goal.

    With `own`, they are goals of Ottla's own figure.
    """

    key: str
    label: str
    unit: str
    better: Better
    at_least: float | None = None
    aim: float | None = None
    own: bool = False

    def meets(self, ratio: float, goal: float) -> bool:
        """Return True if the ratio, or Ottla's own figure, reaches the goal."""
        return ratio >= goal if self.better is Better.HIGHER else ratio <= goal

    def shortfall(self, ratio: float, goal: float) -> float:
        """Return by which fraction the ratio misses the goal; 0 if it reaches it."""
        if self.meets(ratio, goal):
            return 0.0
        return abs(ratio - goal) / goal


def _requests(connections: int, at_least: float, aim: float) -> Metric:
    noun = "connection" if connections == 1 else "connections"
    label = f"1-record requests, acks 1, {connections} {noun}"
    return Metric(f"produce{connections}", label, "req/s", Better.HIGHER, at_least, aim)


def _librdkafka(partitions: int, size: int, at_least: float, aim: float) -> Metric:
    noun = "partition" if partitions == 1 else "partitions"
    size_text = f"{size} B" if size < 1024 else f"{size // 1024} KiB"
    label = f"librdkafka produce, {partitions:,} {noun}, {size_text}"
    return Metric(f"rdkafka-{partitions}x{size}", label, "MB/s", Better.HIGHER, at_least, aim)


def _share(key: str, label: str, at_least: float, aim: float) -> Metric:
    return Metric(key, label, "%", Better.HIGHER, at_least, aim, own=True)


_TRANSACTIONS = "transactions of 100 records of 1 KiB, one producer"
_JAVA_TRANSACTIONS = "transactions of 100 records of 1 KiB, one producer of Kafka's own client"
_IN_TRANSACTIONS = "librdkafka produce in transactions of 1 s, compared with none"


def _settling(protocol: str, text: str) -> Metric:
    label = f"100 members over 1,000 partitions settle, {text}"
    return Metric(f"settle-{protocol}", label, "s", Better.LOWER, 1.0)


_LOWER = Better.LOWER

METRICS: tuple[Metric, ...] = (
    _requests(1, 1.3, 1.5),
    _requests(8, 1.4, 2.0),
    _requests(64, 1.0, 1.5),
    *(
        _librdkafka(partitions, size, at_least, aim)
        for partitions in (1, 6)
        for size, at_least, aim in ((100, 1.2, 1.4), (1024, 1.5, 2.0), (10240, 1.7, 2.5))
    ),
    Metric("consume", "librdkafka consume, 1 KiB", "MB/s", Better.HIGHER, 1.0, 1.5),
    Metric("consume-cpu", "broker CPU per GB consumed", "s/GB", _LOWER, 1.0, 0.5),
    Metric("latency-1000-p50", "produce to consume, 1,000 msg/s, p50", "ms", _LOWER, 1.0),
    Metric("latency-1000-p99", "produce to consume, 1,000 msg/s, p99", "ms", _LOWER, 0.5, 0.1),
    Metric("latency-10000-p50", "produce to consume, 10,000 msg/s, p50", "ms", _LOWER),
    Metric("latency-10000-p99", "produce to consume, 10,000 msg/s, p99", "ms", _LOWER),
    _librdkafka(1000, 1024, 1.2, 1.5),
    Metric("commit", "offset commits, one coordinator", "req/s", Better.HIGHER, 1.3),
    Metric("heartbeat", "broker CPU of a heartbeat, classic", "µs", _LOWER, 1.0),
    Metric("heartbeat-consumer", "broker CPU of a heartbeat, new protocol", "µs", _LOWER, 1.0),
    _settling("classic", "classic"),
    _settling("consumer", "new protocol"),
    Metric("transactions", _TRANSACTIONS, "per s", Better.HIGHER, 1.5, 3.0),
    Metric("commit-p50", "commit of such a transaction, p50", "ms", _LOWER),
    Metric("commit-p99", "commit of such a transaction, p99", "ms", _LOWER),
    Metric("java-transactions", _JAVA_TRANSACTIONS, "per s", Better.HIGHER, 1.5, 3.0),
    Metric("java-commit-p50", "commit of such a transaction, p50", "ms", _LOWER),
    Metric("java-commit-p99", "commit of such a transaction, p99", "ms", _LOWER),
    _share("in-transactions", _IN_TRANSACTIONS, 95, 98),
    _share(
        "read-committed",
        "consume read_committed, compared with read_uncommitted, 1 in 10 aborted",
        90,
        97,
    ),
    Metric("start", "start to first acknowledged write", "s", _LOWER, 1 / 8, 1 / 15),
    Metric("memory-idle", "resident memory, idle", "MB", _LOWER, 1 / 6, 1 / 10),
    Metric("memory-used", "resident memory, after 1 GB through it", "MB", _LOWER, 1 / 10, 1 / 20),
    Metric("restart", "clean restart, {restart}", "s", _LOWER, 1 / 4, 1 / 10),
)

CLUSTER_METRICS: tuple[Metric, ...] = (
    Metric(
        "cluster-produce", "librdkafka produce, 6 partitions, 1 KiB", "MB/s", Better.HIGHER, 2, 3
    ),
    Metric(
        "cluster-latency-p50", "produce to consume, 1,000 msg/s, p50", "ms", _LOWER, 1 / 2, 1 / 5
    ),
    Metric(
        "cluster-latency-p99", "produce to consume, 1,000 msg/s, p99", "ms", _LOWER, 1 / 3, 1 / 10
    ),
    Metric("cluster-transactions", _TRANSACTIONS, "per s", Better.HIGHER, 1.5, 3.0),
    Metric("cluster-commit-p50", "commit of such a transaction, p50", "ms", _LOWER, 1 / 2, 1 / 5),
    Metric("cluster-commit-p99", "commit of such a transaction, p99", "ms", _LOWER, 1 / 2, 1 / 5),
    _share("cluster-in-transactions", _IN_TRANSACTIONS, 95, 98),
    Metric(
        "cluster-start", "cluster start to first acknowledged write", "s", _LOWER, 1 / 8, 1 / 15
    ),
    Metric("kill-leader", "SIGKILL of the leader to the next write", "s", _LOWER, 1 / 10, 1 / 50),
    Metric("stop-leader", "SIGTERM of the leader, longest gap", "s", _LOWER, 1 / 2, 1 / 5),
    Metric(
        "kill-controller",
        "SIGKILL of the active controller, longest gap in creating topics",
        "s",
        _LOWER,
        1 / 2,
        1 / 10,
    ),
    Metric(
        "create-partitions",
        "{created} partitions created and written to",
        "s",
        _LOWER,
        1 / 3,
        1 / 10,
    ),
    Metric(
        "restart-node",
        "restart of a node with {partitions} partitions until all are in sync",
        "s",
        _LOWER,
        1 / 3,
        1 / 10,
    ),
    Metric("node-memory", "resident memory of a node, idle", "MB", _LOWER, 1 / 8, 1 / 15),
    Metric(
        "node-memory-full",
        "resident memory of a node, {partitions} partitions",
        "MB",
        _LOWER,
        1 / 8,
        1 / 15,
    ),
    Metric("cluster-cpu", "CPU of all brokers per GB in and out", "s/GB", _LOWER, 1 / 2, 1 / 3),
)
"""The rows of three nodes with three replicas and acks=all."""
