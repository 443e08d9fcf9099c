"""Time that passes only when it is told to."""

from __future__ import annotations

from typing import Final

START_WALL_MS: Final = 1_700_000_000_000


class VirtualClock:
    """The Clock port. Monotonic time never goes back; wall time may be set, as NTP does."""

    __slots__ = ("_now_ms", "_wall_start_ms")

    def __init__(self, wall_ms: int = START_WALL_MS, *, boot_ms: float = 0.0) -> None:
        self._now_ms = boot_ms
        self._wall_start_ms = wall_ms - int(boot_ms)

    def wall_ms(self) -> int:
        return self._wall_start_ms + int(self._now_ms)

    def monotonic_ms(self) -> float:
        return self._now_ms

    def advance_to(self, now_ms: float) -> None:
        """Let time pass up to a moment; it must not lie in the past."""
        assert now_ms >= self._now_ms, f"time cannot go from {self._now_ms} back to {now_ms}"
        self._now_ms = now_ms

    def step_wall(self, delta_ms: int) -> None:
        """Set the wall clock forward or back; deadlines do not move."""
        self._wall_start_ms += delta_ms
