"""Counts of one API: requests, bytes, and how long its phases take.

Requests and bytes are counted one by one. Times are measured for every request of most APIs, and
for one in thirty-two of the few that come a hundred thousand times a second, where reading the
clock would be felt.

Phases, in milliseconds:
    queue    from the wake-up that received the request until its handler begins
    local    the handler, in the wake-up in which it begins
    wait     from the handler's end until the reply is complete: the write, followers, a long poll
    total    all of it
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.loop_stalls import NOTED_MS

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
EVERY: Final = 0
ONE_IN_32: Final = 31


class Histogram:
    """How many values lie below each bound, how many there are, and their sum."""

    __slots__ = ("buckets", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def observe(self, value_ms: float) -> None:
        """Count one value."""
        self.buckets[bisect_left(BOUNDS_MS, value_ms)] += 1
        self.sum += value_ms


class RequestMetrics:
    """The counts of one API. A request is timed when its number has none of the `mask`'s bits."""

    __slots__ = (
        "local",
        "mask",
        "queue",
        "request_bytes",
        "requests",
        "response_bytes",
        "total",
        "wait",
    )

    def __init__(self, mask: int = EVERY) -> None:
        self.mask = mask
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.queue = Histogram()
        self.local = Histogram()
        self.wait = Histogram()
        self.total = Histogram()

    def phases(self) -> dict[str, Histogram]:
        """Return the histograms by the name of their phase."""
        return {"queue": self.queue, "local": self.local, "wait": self.wait, "total": self.total}

    def begin(self, context: RequestContext) -> float:
        """Note the queue time of a timed request; return when its handler begins."""
        context.is_timed = True
        context.received_ms = context.node.monotonic_ms
        now_ms = context.node.clock.monotonic_ms()
        self.queue.observe(now_ms - context.received_ms)
        return now_ms

    def handled(self, context: RequestContext, began_ms: float) -> None:
        """Note the time of the handler."""
        context.handled_ms = now_ms = context.node.clock.monotonic_ms()
        took_ms = now_ms - began_ms
        self.local.observe(took_ms)
        if took_ms > NOTED_MS:
            node = context.node
            node.loop_stalls.note(context.api.name, took_ms, node.monotonic_ms)

    def answered(self, context: RequestContext) -> None:
        """Note how long a timed request took in all, and how long its reply had to wait."""
        now_ms = context.node.clock.monotonic_ms()
        if context.handled_ms is not None:
            self.wait.observe(now_ms - context.handled_ms)
        self.total.observe(now_ms - context.received_ms)
