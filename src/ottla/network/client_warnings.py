"""Rate-limited warnings about misbehaving clients: they must not fill the operator's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.network.request_handler import RequestHandler


MOST: Final = 10
INTERVAL_MS: Final = 10_000


class ClientWarnings:
    """Reports the first few warnings of an interval, and at its end how many more there were."""

    def __init__(self, node: RequestHandler) -> None:
        self._node = node
        self._count = 0

    def add(self, message: str) -> None:
        """Report a warning, unless there were too many of late."""
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
