"""Workloads on a broker that is running and warm.

A workload creates its topic in `prepare`, once per system, and deletes it in `finish`. Between
them, `measure` may run any number of times. Figures have the keys of `metrics`. Keys that begin
with an underscore are written only to the JSON file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from harness.load import run_load
from harness.native import raw_load, rdkafka_load
from harness.scale import Scale
from harness.target import Target
from harness.topics import KEPT, create_topic, delete_topic, rolling

Figures = dict[str, float]

RECORD_BYTES = 100
SETTLING_ROUNDS = 10
SETTLED = 1.1
"""The load is stable if a round is less than this times as fast as the best one before."""


class Work(Protocol):
    """One kind of load."""

    @property
    def name(self) -> str:
        """The name for --only."""

    @property
    def rounds(self) -> int:
        """The number of rounds."""

    def prepare(self, target: Target) -> None:
        """Create the topic and other needs."""

    def measure(self, target: Target) -> Figures:
        """Run the load once and return the figures."""

    def finish(self, target: Target) -> None:
        """Remove what `prepare` created."""


@dataclass(frozen=True)
class OneTopic:
    """The base of workloads that need one topic of their own name."""

    name: str
    scale: Scale
    partitions: int = 1
    replicas: int = field(default=1, kw_only=True)

    @property
    def rounds(self) -> int:
        """The number of rounds of the scale."""
        return self.scale.rounds

    def prepare(self, target: Target) -> None:
        """Create the topic, with a short retention."""
        create_topic(
            target.port,
            self.name,
            self.partitions,
            rolling(self.partitions),
            replicas=self.replicas,
            others=target.ports[1:],
        )

    def finish(self, target: Target) -> None:
        """Delete the topic."""
        delete_topic(target.port, self.name)


@dataclass(frozen=True)
class OneRecordRequests(OneTopic):
    """Requests with one record of 100 B each, one in flight per connection."""

    connections: int = 1

    def measure(self, target: Target) -> Figures:
        """Return the acknowledged requests per second."""
        done = run_load(
            raw_load(), target, target.port, self.name, self.connections, 1, RECORD_BYTES,
            self.scale.load_warm_s, self.scale.load_s,
        )  # fmt: skip
        return {
            self.name: done["requests_per_s"],
            "_p50_us": done["p50_us"],
            "_p99_us": done["p99_us"],
            "_broker_cpu": done["cpu_s"] / done["seconds"],
        }


@dataclass(frozen=True)
class LibrdkafkaProduce(OneTopic):
    """A librdkafka producer that writes to all partitions in turn, as fast as it can.

    It switches to the next partition after `run` messages. For messages without keys, librdkafka's
    own partitioner switches every 10 ms. A switch after each message halves the client's speed.
    """

    record_bytes: int = 1024
    run: int = 1000
    linger_ms: int = 5
    acks: str = "1"

    @property
    def rounds(self) -> int:
        """More rounds than others: client and broker use all cores, and rounds differ most here."""
        return self.scale.rounds + self.scale.more_rounds

    @property
    def settling_bytes(self) -> int:
        """The size of all partitions when segments are deleted as fast as they are written."""
        return self.partitions * self.scale.settling_bytes

    def prepare(self, target: Target) -> None:
        """Create the topic and write until retention is at work and the speed is stable.

        Otherwise the first access to that memory would be measured, which is slow for both systems.
        """
        super().prepare(target)
        if self.partitions > 1 or self.settling_bytes:
            self._settle(target)

    def _settle(self, target: Target) -> None:
        best = written = 0.0
        for _ in range(SETTLING_ROUNDS):
            reached = self.measure(target)[self.name]
            written += reached * 1e6 * self.scale.load_s
            if reached < SETTLED * best and written >= self.settling_bytes:
                return
            best = max(best, reached)

    def measure(self, target: Target) -> Figures:
        """Return the megabytes of acknowledged values per second."""
        done = run_load(
            rdkafka_load(), target, "produce", target.ports_text, self.name, self.acks,
            self.partitions, self.run, self.record_bytes, self.linger_ms,
            self.scale.load_warm_s, self.scale.load_s,
        )  # fmt: skip
        return {
            self.name: done["mb_per_s"],
            "_cpu_s_per_gb": done["cpu_s"] / (done["bytes"] / 1e9),
            "_broker_cpu": done["cpu_s"] / done["seconds"],
        }


@dataclass(frozen=True)
class ManyPartitions(LibrdkafkaProduce):
    """The same with very many partitions, 16 KiB to each in turn.

    This is the batch size of Kafka's own producer. With single messages in turn, the size of
    librdkafka's batches would depend on the broker's speed, and there would be two stable results.
    """

    run: int = 16

    @property
    def rounds(self) -> int:
        """The usual number of rounds: the data is kept, and memory is limited."""
        return self.scale.rounds

    @property
    def settling_bytes(self) -> int:
        """0, because no partition gets as much data as its retention allows."""
        return 0


@dataclass(frozen=True)
class LibrdkafkaConsume(OneTopic):
    """A librdkafka consumer reading the same warm data several times."""

    filled: dict[Target, float] = field(default_factory=dict)

    def prepare(self, target: Target) -> None:
        """Fill a topic that keeps its data."""
        create_topic(target.port, self.name, 1, KEPT)
        self.filled[target] = fill(target, self.name, self.scale.consume_bytes, 1024)

    def measure(self, target: Target) -> Figures:
        """Return the megabytes of values per second, and the broker's CPU per gigabyte."""
        done = consume(target, self.name, self.filled[target], self.scale.consume_passes)
        return {self.name: done["mb_per_s"], "consume-cpu": done["cpu_s"] / (done["bytes"] / 1e9)}


@dataclass(frozen=True)
class Latency(OneTopic):
    """Messages of 100 B sent at a steady rate and consumed by the same process."""

    rate: int = 1000
    acks: str = "1"

    def measure(self, target: Target) -> Figures:
        """Return the milliseconds from the producer's call to the consumer's result."""
        done = run_load(
            rdkafka_load(), target, "latency", target.ports_text, self.name, self.acks, self.rate,
            RECORD_BYTES, self.scale.load_warm_s, self.scale.latency_s,
        )  # fmt: skip
        return {
            f"{self.name}-p50": done["p50_ms"],
            f"{self.name}-p99": done["p99_ms"],
            "_max_ms": done["max_ms"],
            "_broker_cpu": done["cpu_s"] / self.scale.latency_s,
        }


def fill(target: Target, topic: str, total_bytes: int, record_bytes: int) -> float:
    """Produce this many bytes of values to partition 0. Return the exact number."""
    return run_fill(target, topic, "1", total_bytes, record_bytes)["bytes"]


def run_fill(
    target: Target, topic: str, acks: str, total_bytes: int, record_bytes: int
) -> dict[str, float]:
    """Do the same with other acks. Return the report of the generator."""
    return run_load(
        rdkafka_load(), target, "fill", target.ports_text, topic, acks, record_bytes, total_bytes
    )


def consume(target: Target, topic: str, total_bytes: float, passes: int) -> dict[str, float]:
    """Read this many bytes of values from the beginning of partition 0, `passes` times."""
    return run_load(
        rdkafka_load(), target, "consume", target.ports_text, topic, total_bytes, passes
    )


def warm_works(scale: Scale) -> list[Work]:
    """Return these workloads in the order of the table."""
    return [
        *(OneRecordRequests(f"produce{n}", scale, connections=n) for n in (1, 8, 64)),
        *(
            LibrdkafkaProduce(f"rdkafka-{partitions}x{size}", scale, partitions, size)
            for partitions in (1, 6)
            for size in (100, 1024, 10240)
        ),
        LibrdkafkaConsume("consume", scale),
        *(Latency(f"latency-{rate}", scale, rate=rate) for rate in (1000, 10000)),
        ManyPartitions("rdkafka-1000x1024", scale, 1000, 1024),
    ]
