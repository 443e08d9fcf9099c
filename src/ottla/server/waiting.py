"""Waiting for events: asleep, or polling for a moment if the next ones will come soon.

Sleeping and waking up takes longer than a small request, above all on a virtual machine. So after
a few short waits in a row (clients that send the next request when they have the reply to the
last), the loop polls for a moment instead of sleeping, and lets other threads run in between. It
stops polling after the first longer wait, and after large requests. An idle broker sleeps (ADR 7).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf
from typing import Final, TypeAlias

AWAKE_MS: Final = 0.1
SHORT_WAITS: Final = 8  # in a row, before the next one is spent awake

Events: TypeAlias = list[tuple[int, int]]


def _no_yield() -> None:
    """Do nothing, on systems where a thread cannot offer its time to others."""


_yield: Callable[[], None] = getattr(os, "sched_yield", _no_yield)


class Waiting:
    """Waits with `poll`, that of a poller, which takes a timeout in seconds."""

    __slots__ = ("_now_ms", "_poll", "_short", "_until_ms")

    def __init__(self, poll: Callable[[float], Events], now_ms: Callable[[], float]) -> None:
        self._poll = poll
        self._now_ms = now_ms
        self._short = 0
        self._until_ms = 0.0
        """The last wait was a short one if it ended before this time."""

    def wait(
        self,
        began_ms: float,
        woke_ms: float,
        timeout_s: Callable[[float], float],
        *,
        awake: bool,
    ) -> Events:
        """Return the next events, or none after the timeout. `awake` allows polling.

        `began_ms` is the time now, and is given to `timeout_s`; `woke_ms` is when the last wait
        ended. The loop knows both, so the clock is not read here before the loop polls.
        """
        if not awake:
            self._short = 0
            self._until_ms = 0.0
            return self._poll(timeout_s(began_ms))
        short = self._short + 1 if woke_ms < self._until_ms else 0
        self._short = short
        until_ms = began_ms + AWAKE_MS
        if short < SHORT_WAITS:
            self._until_ms = until_ms
            return self._poll(timeout_s(began_ms))
        poll, now_ms = self._poll, self._now_ms
        while not (events := poll(0)):
            if now_ms() >= until_ms:
                self._until_ms = 0.0
                return poll(timeout_s(until_ms))
            _yield()
        self._until_ms = inf  # it was awake all the time
        return events
