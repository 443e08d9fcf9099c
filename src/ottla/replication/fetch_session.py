"""Incremental fetch sessions (KIP-227): a bounded cache with Kafka's eviction rules.

A new session takes a free slot, or the slot of a session unused for two minutes, or that
of a less valuable one: followers over consumers, larger over smaller; a session is safe
from its equals during its first two minutes.

All sessions together take at most MOST_BYTES of memory, whatever is fetched. A fetch for which
there is no room is answered without a session, as if there were no slot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, run_to_end
from ottla.ports import Random
from ottla.replication.fetch_partitions import Fetcher

EVICTION_MS: Final = 120_000
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_MAX_ID: Final = 2**31 - 1

MOST_BYTES: Final = 256 * 1024 * 1024


def next_epoch(epoch: int) -> int:
    """Return the epoch after this one; zero and below are reserved."""
    return 1 if epoch >= _MAX_EPOCH else epoch + 1


class FetchSession:
    """A fetcher with an id, and the epoch its next request must carry."""

    __slots__ = (
        "created_ms",
        "epoch",
        "fetcher",
        "held_bytes",
        "privileged",
        "session_id",
        "used_ms",
        "uses_ids",
    )

    def __init__(
        self, session_id: int, fetcher: Fetcher, *, privileged: bool, uses_ids: bool, now_ms: float
    ) -> None:
        self.session_id = session_id
        self.fetcher = fetcher
        self.held_bytes = 0
        """What is counted for it."""
        self.privileged = privileged
        self.uses_ids = uses_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.used_ms = now_ms

    def value(self) -> tuple[bool, int, int]:
        """Return the value of the session: the one with the lowest is evicted first."""
        return self.privileged, len(self.fetcher.entries), self.session_id


class FetchSessions:
    """The cache, least recently used first."""

    def __init__(
        self,
        slots: int,
        random: Random,
        run: Callable[[Steps[None]], object] = run_to_end,
    ) -> None:
        """Keep at most this many sessions. `run` does what may take long."""
        self._slots = slots
        self._random = random
        self._run = run
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.held_bytes = 0
        """About what all sessions take in memory."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, fetcher: Fetcher, *, privileged: bool, uses_ids: bool, now_ms: float
    ) -> FetchSession | None:
        """Return a new session for this fetcher, or None if there is no slot for it."""
        size = len(fetcher.entries)
        if not size or self.held_bytes + fetcher.held_bytes > MOST_BYTES:
            return None
        if not self._make_room(privileged, size, now_ms):
            return None
        session_id = 1 + self._random.below(_MAX_ID)
        while session_id in self._sessions:
            session_id = 1 + self._random.below(_MAX_ID)
        session = FetchSession(
            session_id, fetcher, privileged=privileged, uses_ids=uses_ids, now_ms=now_ms
        )
        self._sessions[session_id] = session
        self.count(session)
        return session

    def count(self, session: FetchSession) -> None:
        """Count what a session takes now; close it and raise ApiError if there is no room for it.

        The client then begins a new session.
        """
        grown_bytes = session.fetcher.held_bytes - session.held_bytes
        session.held_bytes += grown_bytes
        self.held_bytes += grown_bytes
        if grown_bytes > 0 and self.held_bytes > MOST_BYTES:
            self.close(session.session_id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def is_open(self, session: FetchSession) -> bool:
        """Return True if the session was not closed meanwhile."""
        return self._sessions.get(session.session_id) is session

    def use(self, session_id: int, epoch: int, *, uses_ids: bool, now_ms: float) -> FetchSession:
        """Return the session that a request continues; raise ApiError if it cannot."""
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        """Close a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.held_bytes -= session.held_bytes
            self._run(session.fetcher.close())

    def _make_room(self, privileged: bool, size: int, now_ms: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            self.close(oldest.session_id)
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
        ]
        if not evictable:
            return False
        cheapest = min(evictable, key=FetchSession.value)
        if (privileged, size, 0) < cheapest.value():
            return False
        self.close(cheapest.session_id)
        return True
