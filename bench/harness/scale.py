"""How long and how much: the full measurement, and the quick one that fits in three minutes."""

from __future__ import annotations

from dataclasses import dataclass, replace

MIB = 1 << 20
WARM_UP_CONSUME_BYTES = 300_000_000


@dataclass(frozen=True)
class Scale:
    """Durations in seconds and volumes in bytes of one run."""

    rounds: int
    load_s: float
    load_warm_s: float
    latency_s: float
    warm_up_s: float
    consume_bytes: int
    consume_passes: int
    memory_bytes: int
    restart_segments: int
    restart_segment_bytes: int = 50 * MIB
    memory_settle_s: float = 1.0

    def for_warm_up(self) -> Scale:
        """The same works, as short as warming up needs them."""
        return replace(
            self, load_s=self.warm_up_s, load_warm_s=0.1, consume_bytes=WARM_UP_CONSUME_BYTES
        )


FULL = Scale(
    rounds=3, load_s=4.0, load_warm_s=1.5, latency_s=8.0, warm_up_s=6.0,
    consume_bytes=1_000_000_000, consume_passes=3, memory_bytes=1_000_000_000,
    restart_segments=200,
)  # fmt: skip

QUICK = Scale(
    rounds=1, load_s=1.5, load_warm_s=0.7, latency_s=3.0, warm_up_s=2.5,
    consume_bytes=500_000_000, consume_passes=2, memory_bytes=1_000_000_000,
    restart_segments=20,
)  # fmt: skip
