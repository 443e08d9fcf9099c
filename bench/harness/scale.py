"""Durations and volumes: of the full measurement, and of the quick one under three minutes."""

from __future__ import annotations

from dataclasses import dataclass, replace

MIB = 1 << 20
WARM_UP_CONSUME_BYTES = 300_000_000


@dataclass(frozen=True)
class Scale:
    """Durations in seconds and volumes in bytes of one run."""

    rounds: int
    more_rounds: int
    """Additional rounds for the workloads that vary most."""
    settling_bytes: int
    """Written to each partition before the measurement, so that retention is already at work."""
    load_s: float
    load_warm_s: float
    latency_s: float
    warm_up_s: float
    consume_bytes: int
    consume_passes: int
    transactions_bytes: int
    """Written in transactions of 100 KiB, to consume them."""
    produce_pairs: int
    """How often a producer writes in transactions and then without."""
    memory_bytes: int
    restart_segments: int
    restart_segment_bytes: int = 50 * MIB
    memory_settle_s: float = 1.0
    created_partitions: int = 1000
    """Created in a cluster at once, with a write to each."""
    restart_partitions: int = 5000
    """In a cluster whose node restarts."""

    def sizes(self) -> dict[str, str]:
        """Return the sizes that stand in the labels of rows."""
        gigabytes = self.restart_segments * self.restart_segment_bytes / 1e9
        return {
            "restart": f"{gigabytes:.0f} GB in {self.restart_segments} segments",
            "created": f"{self.created_partitions:,}",
            "partitions": f"{self.restart_partitions:,}",
        }

    def for_warm_up(self) -> Scale:
        """Return the scale of a warm-up."""
        return replace(
            self, load_s=self.warm_up_s, load_warm_s=0.1, consume_bytes=WARM_UP_CONSUME_BYTES,
            settling_bytes=0,
        )  # fmt: skip


FULL = Scale(
    rounds=3, more_rounds=2, settling_bytes=1024 * MIB,
    load_s=3.0, load_warm_s=1.0, latency_s=8.0, warm_up_s=6.0,
    consume_bytes=1_000_000_000, consume_passes=3,
    transactions_bytes=400_000_000, produce_pairs=2, memory_bytes=1_000_000_000,
    restart_segments=200,
)  # fmt: skip

QUICK = Scale(
    rounds=1, more_rounds=0, settling_bytes=0,
    load_s=1.5, load_warm_s=0.7, latency_s=3.0, warm_up_s=2.5,
    consume_bytes=500_000_000, consume_passes=2,
    transactions_bytes=100_000_000, produce_pairs=1, memory_bytes=1_000_000_000,
    restart_segments=20, created_partitions=200, restart_partitions=500,
)  # fmt: skip
