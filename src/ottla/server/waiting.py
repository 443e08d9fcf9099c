"""Waiting for events: asleep, or polling for a moment if the next ones will come soon.

Sleeping and waking up takes longer than a small request, above all on a virtual machine. So after
a few short waits in a row (clients that send the next request when they have the reply to the
last), the loop polls for a moment instead of sleeping, and lets other threads run in between. It
stops polling after the first longer wait, and after large requests. An idle broker sleeps (ADR 7).
"""

from __future__ import annotations

from collections.abc import Callable
from os import sched_yield
from time import monotonic
from typing import Final, TypeAlias

AWAKE_S: Final = 100e-6
SHORT_WAITS: Final = 8  # in a row, before the next one is spent awake

Events: TypeAlias = list[tuple[int, int]]


class Waiting:
    """Waits with `poll`, that of an epoll object, which takes a timeout in seconds."""

    __slots__ = ("_now_s", "_poll", "_short")

    def __init__(
        self, poll: Callable[[float], Events], now_s: Callable[[], float] = monotonic
    ) -> None:
        self._poll = poll
        self._now_s = now_s
        self._short = 0

    def wait(self, timeout_s: Callable[[], float], *, awake: bool) -> Events:
        """Return the next events, or none after the timeout. `awake` allows polling."""
        poll, now_s = self._poll, self._now_s
        if not awake:  # and the clock need not be read
            self._short = 0
            return poll(timeout_s())
        until_s = now_s() + AWAKE_S
        if self._short >= SHORT_WAITS:
            while not (events := poll(0)):
                if now_s() >= until_s:
                    self._short = 0
                    return poll(timeout_s())
                sched_yield()
            return events
        events = poll(timeout_s())
        self._short = self._short + 1 if now_s() < until_s else 0
        return events
