"""Waits for events: asleep, or polling for a moment if the next ones will come soon.

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


class EventWait:
    """Waits with `poll`, that of a poller, which takes a timeout in seconds.

    `timeout_s` returns how long the loop may sleep from a time on. All times are given by the loop,
    which knows them, so the clock is read here only while the loop polls.
    """

    __slots__ = ("_now_ms", "_poll", "_short", "_timeout_s", "_until_ms")

    def __init__(
        self,
        poll: Callable[[float], Events],
        now_ms: Callable[[], float],
        timeout_s: Callable[[float], float],
    ) -> None:
        self._poll = poll
        self._now_ms = now_ms
        self._timeout_s = timeout_s
        self._short = 0
        self._until_ms = 0.0
        """The last wait was a short one if it ended before this time."""

    def sleep(self, began_ms: float) -> Events:
        """Return the next events, or none after the timeout. `began_ms` is the time now."""
        self._short = 0
        self._until_ms = 0.0
        return self._poll(self._timeout_s(began_ms))

    def wait(self, began_ms: float, woke_ms: float) -> Events:
        """Do the same, and poll for a moment after a few short waits in a row.

        `woke_ms` is when the last wait ended.
        """
        short = self._short + 1 if woke_ms < self._until_ms else 0
        self._short = short
        poll = self._poll
        if short < SHORT_WAITS:
            self._until_ms = began_ms + AWAKE_MS
            return poll(self._timeout_s(began_ms))
        events = poll(0)
        if not events:
            now_ms, until_ms = self._now_ms, began_ms + AWAKE_MS
            while not events:
                if now_ms() >= until_ms:
                    self._until_ms = 0.0
                    return poll(self._timeout_s(until_ms))
                _yield()
                events = poll(0)
        self._until_ms = inf  # it was awake all the time
        return events
