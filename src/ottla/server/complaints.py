"""What misbehaving clients make us say, bounded: they must not fill the operator's disk."""

from __future__ import annotations

from ottla.broker.node import Node

MOST = 10
INTERVAL_MS = 10_000


class Complaints:
    """Reports the first few of an interval, and how many more there were at its end."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._count = 0

    def add(self, message: str) -> None:
        if self._count == 0:
            self._node.timers.at(self._node.monotonic_ms + INTERVAL_MS, self._summarise)
        self._count += 1
        if self._count <= MOST:
            self._node.report(message)

    def _summarise(self) -> None:
        if self._count > MOST:
            seconds = INTERVAL_MS // 1000
            self._node.report(f"... and {self._count - MOST} more like these in {seconds} s")
        self._count = 0
