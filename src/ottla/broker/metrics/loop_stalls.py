"""How often, how long and by what the event loop was held.

Nothing may hold the loop for more than a few milliseconds, because everybody else waits meanwhile.
The loop compares the end of each wake-up with its beginning; it reads the clock there anyway. One
that took longer than STALL_MS is a stall. It is counted, and reported to the operator, but not
more often than every REPORT_MS.

What held the loop is known where something is timed for other reasons: requests that are timed
(`request_metrics`), timers, results of background work, and Python's garbage collection. Only one
in 32 of the most frequent requests is timed, so a stall may also be of unknown cause: "other".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

STALL_MS: Final = 50.0
NOTED_MS: Final = 10.0
"""What takes longer than this is worth a `note`."""
REPORT_MS: Final = 10_000.0
OTHER: Final = "other"
TIMER: Final = "timer"
RESULT: Final = "background result"
COLLECTION: Final = "garbage collection"


class LoopStalls:
    """Counts of stalls, by what held the loop."""

    __slots__ = (
        "_cause",
        "_cause_began_ms",
        "_cause_ms",
        "_detail",
        "_report",
        "_reported_ms",
        "_unreported",
        "counts",
        "longest_ms",
        "total_ms",
    )

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self.counts: dict[str, int] = {}
        self.total_ms: dict[str, float] = {}
        self.longest_ms = 0.0
        self._cause = OTHER
        self._detail = ""
        self._cause_ms = 0.0
        self._cause_began_ms = -1.0
        self._reported_ms = -REPORT_MS
        self._unreported = 0

    @property
    def count(self) -> int:
        """How many stalls there were."""
        return sum(self.counts.values())

    def note(self, cause: str, took_ms: float, began_ms: float, detail: str = "") -> None:
        """Remember what took long in the wake-up that began at `began_ms`."""
        if began_ms != self._cause_began_ms or took_ms > self._cause_ms:
            self._cause, self._detail = cause, detail
            self._cause_ms, self._cause_began_ms = took_ms, began_ms

    def add(self, held_ms: float, began_ms: float) -> None:
        """Count a wake-up that has held the loop for longer than STALL_MS."""
        cause, detail = OTHER, ""
        if began_ms == self._cause_began_ms and 2 * self._cause_ms >= held_ms:
            cause, detail = self._cause, self._detail
        self.counts[cause] = self.counts.get(cause, 0) + 1
        self.total_ms[cause] = self.total_ms.get(cause, 0.0) + held_ms
        self.longest_ms = max(self.longest_ms, held_ms)
        if began_ms - self._reported_ms < REPORT_MS:
            self._unreported += 1
            return
        more = f", and {self._unreported} times since the last message" if self._unreported else ""
        held_by = f"{cause} ({detail})" if detail else cause
        self._report(f"the event loop was held for {held_ms:.0f} ms by: {held_by}{more}")
        self._reported_ms = began_ms
        self._unreported = 0


def name_of(action: Callable[..., object]) -> str:
    """Return the name of a function, for messages."""
    while isinstance(action, partial):
        action = action.func
    name = getattr(action, "__qualname__", type(action).__qualname__)
    return str(name).replace(".<locals>", "").replace(".<lambda>", "")


def names_of(actions: Sequence[Callable[..., object]]) -> str:
    """Return the names of a few functions."""
    names = list(dict.fromkeys(map(name_of, actions)))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
