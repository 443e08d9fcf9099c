"""Fetches of followers that wait on this broker, and when they must not wait long.

A follower has one fetch under way to each leader. While it waits here for new records, the follower
cannot ask for a partition that this broker has just begun to lead, and nothing that is written to
that partition can be committed. So these fetches are answered when this broker begins to lead, and
for a short while afterwards none waits long: the follower may learn of its new leader later than
the leader itself.
"""

from __future__ import annotations

from typing import Final, Protocol

EAGER_MS: Final = 500
"""How long after the beginning of a leadership fetches wait only shortly."""
SHORT_WAIT_MS: Final = 20


class WaitingFetch(Protocol):
    """A fetch of a follower that waits for records."""

    def answer_soon(self) -> None:
        """Answer at the end of this wake-up."""
        ...


class FollowerWaits:
    """The fetches of followers that wait now: at most one from each of them."""

    def __init__(self) -> None:
        self._waiting: dict[WaitingFetch, None] = {}
        self._eager_until_ms = 0.0

    def begin(self, fetch: WaitingFetch, max_wait_ms: int, now_ms: float) -> int:
        """Take note of a fetch that waits, and return how long it may."""
        self._waiting[fetch] = None
        return min(max_wait_ms, SHORT_WAIT_MS) if now_ms < self._eager_until_ms else max_wait_ms

    def end(self, fetch: WaitingFetch) -> None:
        """Take note that a fetch does not wait any more."""
        self._waiting.pop(fetch, None)

    def leadership_began(self, now_ms: float) -> None:
        """Have followers ask again, as this broker leads other partitions than before."""
        self._eager_until_ms = now_ms + EAGER_MS
        for fetch in tuple(self._waiting):
            fetch.answer_soon()
