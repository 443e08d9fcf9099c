"""Workloads of transactional producers and of consumers of what they write.

Each producer is librdkafka's, with acks=all, or Kafka's own with its defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.java import JAVA_LOADS, java_launcher
from harness.load import run_load
from harness.native import transactions_load
from harness.problem import BenchError
from harness.scale import Scale
from harness.target import Target
from harness.topics import KEPT, create_topic
from harness.works import Figures, OneTopic, Work

RECORDS = 100
RECORD_BYTES = 1024
TRANSACTION_S = 1.0
TRANSACTIONS = 3
RUN = 1000
ABORT_EVERY = 10
PARTITIONS = 6
JAVA_WARM_UP = 4
"""How many times longer Java's producer is warmed up: its code is compiled meanwhile."""


@dataclass(frozen=True)
class Commits(OneTopic):
    """One producer that writes transactions of 100 KiB, one after the other, as fast as it can.

    Each transaction writes to one partition, the next one to the next partition.
    """

    commit: str = field(default="commit", kw_only=True)
    """The name of the figures of the commit."""

    @property
    def rounds(self) -> int:
        """More rounds than others: the client waits for timers of its own, and rounds differ."""
        return self.scale.rounds + self.scale.more_rounds

    def prepare(self, target: Target) -> None:
        """Create the topic, and run the load once: the warm-up has no transactions."""
        super().prepare(target)
        self.measure(target)

    def measure(self, target: Target) -> Figures:
        """Return the transactions per second and the times of their commits."""
        done = self._run(target)
        return {
            self.name: done["per_s"],
            f"{self.commit}-p50": done["p50_ms"],
            f"{self.commit}-p99": done["p99_ms"],
            "_max_ms": done["max_ms"],
            "_cpu_ms": done["cpu_s"] / done["transactions"] * 1e3,
        }

    def _run(self, target: Target) -> dict[str, float]:
        return run_load(
            transactions_load(), target, "commits", target.ports_text, self.name,
            self.partitions, RECORDS, RECORD_BYTES, self.scale.load_warm_s, self.scale.load_s,
        )  # fmt: skip


@dataclass(frozen=True)
class JavaCommits(Commits):
    """The same with Kafka's own producer, whose process is a new one in each round."""

    def _run(self, target: Target) -> dict[str, float]:
        return run_load(
            JAVA_LOADS / "TransactionsLoad.java", target, target.ports_text, self.name,
            self.partitions, RECORDS, RECORD_BYTES, JAVA_WARM_UP * self.scale.load_warm_s,
            self.scale.load_s, launcher=java_launcher(),
        )  # fmt: skip


@dataclass(frozen=True)
class ProduceInTransactions(OneTopic):
    """Two idempotent producers in turn: one in transactions of a second, the other without."""

    def prepare(self, target: Target) -> None:
        """Create the topic, and run the load once."""
        super().prepare(target)
        self.measure(target)

    def measure(self, target: Target) -> Figures:
        """Return the throughput in transactions as a percentage of that without."""
        done = run_load(
            transactions_load(), target, "produce", target.ports_text, self.name,
            self.partitions, RUN, RECORD_BYTES, TRANSACTION_S, TRANSACTIONS,
            self.scale.produce_pairs,
        )  # fmt: skip
        return {
            self.name: 100 * done["mb_per_s"] / done["plain_mb_per_s"],
            "_mb_per_s": done["mb_per_s"],
            "_plain_mb_per_s": done["plain_mb_per_s"],
        }


@dataclass(frozen=True)
class ReadCommitted(OneTopic):
    """A consumer that reads a partition in which one transaction of ten is aborted.

    Both isolation levels read the same log, so their times are compared, not what they return.
    """

    filled: dict[Target, dict[str, float]] = field(default_factory=dict)

    def prepare(self, target: Target) -> None:
        """Fill a topic that keeps its data."""
        create_topic(target.port, self.name, 1, KEPT)
        self.filled[target] = run_load(
            transactions_load(), target, "fill", target.ports_text, self.name, RECORDS,
            RECORD_BYTES, self.scale.transactions_bytes, ABORT_EVERY,
        )  # fmt: skip

    def measure(self, target: Target) -> Figures:
        """Return the speed of read_committed as a percentage of that of read_uncommitted."""
        filled = self.filled[target]
        done = run_load(
            transactions_load(), target, "consume", target.ports_text, self.name,
            int(filled["last_offset"]), 2 * self.scale.consume_passes,
        )  # fmt: skip
        if not done["committed"] < done["messages"]:
            raise BenchError("a read_committed consumer got messages of aborted transactions")
        megabytes = done["messages"] * RECORD_BYTES / 1e6
        return {
            self.name: 100 * done["uncommitted_s"] / done["committed_s"],
            "_mb_per_s": megabytes / done["committed_s"],
            "_uncommitted_mb_per_s": megabytes / done["uncommitted_s"],
        }


def transaction_works(scale: Scale) -> list[Work]:
    """Return these workloads in the order of the table."""
    return [
        Commits("transactions", scale, PARTITIONS),
        JavaCommits("java-transactions", scale, PARTITIONS, commit="java-commit"),
        ProduceInTransactions("in-transactions", scale, PARTITIONS),
        ReadCommitted("read-committed", scale),
    ]
