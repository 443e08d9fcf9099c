"""Works on a broker that is running and warm: load it, report figures.

A work makes its topic in `prepare`, once per system, and removes it in `finish`; `measure` may run
any number of times between them. Figures are keyed as in `metrics`; what begins with an underscore
goes to the JSON file only.
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
"""A round is less than this times as fast as the best before."""


class Work(Protocol):
    """One kind of load."""

    @property
    def name(self) -> str:
        """As given to --only."""

    @property
    def rounds(self) -> int:
        """How often it is measured."""

    def prepare(self, target: Target) -> None:
        """Makes what the work needs."""

    def measure(self, target: Target) -> Figures:
        """Runs the load once."""

    def finish(self, target: Target) -> None:
        """Removes what `prepare` made."""


@dataclass(frozen=True)
class OneTopic:
    """What works share that need a single topic of their own name."""

    name: str
    scale: Scale
    partitions: int = 1

    @property
    def rounds(self) -> int:
        """As often as the scale says."""
        return self.scale.rounds

    def prepare(self, target: Target) -> None:
        """Makes the topic, with data that goes soon."""
        create_topic(target.port, self.name, self.partitions, rolling(self.partitions))

    def finish(self, target: Target) -> None:
        """Removes the topic."""
        delete_topic(target.port, self.name)


@dataclass(frozen=True)
class OneRecordRequests(OneTopic):
    """Requests with one record of 100 B each, one in flight per connection."""

    connections: int = 1

    def measure(self, target: Target) -> Figures:
        """Requests acknowledged per second."""
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
    """A librdkafka producer going round all partitions as fast as it can.

    It stays `run` messages with a partition, as librdkafka's own partitioner does for 10 ms where
    there are no keys; changing with every message halves what the client can do.
    """

    record_bytes: int = 1024
    run: int = 1000
    linger_ms: int = 5

    @property
    def rounds(self) -> int:
        """More than others: client and broker fill the machine, and rounds differ most here."""
        return self.scale.rounds + self.scale.more_rounds

    @property
    def settling_bytes(self) -> int:
        """What all partitions hold when old segments go as fast as new ones come."""
        return self.partitions * self.scale.settling_bytes

    def prepare(self, target: Target) -> None:
        """Makes the topic and writes until it holds what it keeps, and that gets no faster.

        Otherwise the first touch of that memory would be measured, which costs both systems alike.
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
        """Megabytes of values acknowledged per second."""
        done = run_load(
            rdkafka_load(), target, "produce", target.port, self.name, self.partitions, self.run,
            self.record_bytes, self.linger_ms, self.scale.load_warm_s, self.scale.load_s,
        )  # fmt: skip
        return {
            self.name: done["mb_per_s"],
            "_cpu_s_per_gb": done["cpu_s"] / (done["bytes"] / 1e9),
            "_broker_cpu": done["cpu_s"] / done["seconds"],
        }


@dataclass(frozen=True)
class ManyPartitions(LibrdkafkaProduce):
    """The same over very many partitions, 16 KiB to each in turn.

    That is the batch size of Kafka's own producer. With single messages in turn the size of
    librdkafka's batches would follow from the broker's speed, and the result be either of two.
    """

    run: int = 16

    @property
    def rounds(self) -> int:
        """As often as others: what is written stays, and there is only so much memory."""
        return self.scale.rounds

    @property
    def settling_bytes(self) -> int:
        """None: no partition gets as much as it keeps."""
        return 0


@dataclass(frozen=True)
class LibrdkafkaConsume(OneTopic):
    """A librdkafka consumer reading the same warm data several times."""

    filled: dict[Target, float] = field(default_factory=dict)

    def prepare(self, target: Target) -> None:
        """Fills a topic that keeps its data."""
        create_topic(target.port, self.name, 1, KEPT)
        self.filled[target] = fill(target, self.name, self.scale.consume_bytes, 1024)

    def measure(self, target: Target) -> Figures:
        """Megabytes of values per second, and the broker's CPU for a gigabyte."""
        done = consume(target, self.name, self.filled[target], self.scale.consume_passes)
        return {self.name: done["mb_per_s"], "consume-cpu": done["cpu_s"] / (done["bytes"] / 1e9)}


@dataclass(frozen=True)
class Latency(OneTopic):
    """Messages of 100 B sent at a steady rate and consumed by the same process."""

    rate: int = 1000

    def measure(self, target: Target) -> Figures:
        """Milliseconds from handing a message to the producer to having it from the consumer."""
        done = run_load(
            rdkafka_load(), target, "latency", target.port, self.name, self.rate, RECORD_BYTES,
            self.scale.load_warm_s, self.scale.latency_s,
        )  # fmt: skip
        return {
            f"{self.name}-p50": done["p50_ms"],
            f"{self.name}-p99": done["p99_ms"],
            "_max_ms": done["max_ms"],
            "_broker_cpu": done["cpu_s"] / self.scale.latency_s,
        }


def fill(target: Target, topic: str, total_bytes: int, record_bytes: int) -> float:
    """Produces that many bytes of values to partition 0; returns the exact number."""
    done = run_load(rdkafka_load(), target, "fill", target.port, topic, record_bytes, total_bytes)
    return done["bytes"]


def consume(target: Target, topic: str, total_bytes: float, passes: int) -> dict[str, float]:
    """Reads that many bytes of values from the beginning of partition 0, `passes` times."""
    return run_load(rdkafka_load(), target, "consume", target.port, topic, total_bytes, passes)


def warm_works(scale: Scale) -> list[Work]:
    """All works for a running broker, in the order of the table."""
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
