"""Signs of life of brokers, as the active controller counts them.

This is not in the metadata: a new active controller gives every broker a whole session first,
unless it finds that nobody listens at its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.metadata.image import BrokerImage


class BrokerSession:
    """What the controller knows of one broker besides its registration."""

    __slots__ = (
        "contact_ms",
        "is_heard_of",
        "lost_ms",
        "metadata_offset",
        "shutdown_asked_ms",
        "shutdown_offset",
    )

    def __init__(self, now_ms: float, *, is_heard_of: bool) -> None:
        self.contact_ms = now_ms
        self.is_heard_of = is_heard_of
        """False if only an earlier controller has heard of this broker."""
        self.lost_ms: float | None = None
        """When its connections were closed, if they were and it has not come back."""
        self.metadata_offset = -1
        """The last record of the metadata that it has."""
        self.shutdown_asked_ms: float | None = None
        """When it first asked to stop, None if it does not want to."""
        self.shutdown_offset: int | None = None
        """It may stop when all others know the metadata up to here: they lead its partitions."""


class BrokerHeartbeats:
    """The sessions of all registered brokers."""

    def __init__(self, session_timeout_ms: float, grace_ms: float) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._grace_ms = grace_ms
        self.sessions: dict[int, BrokerSession] = {}

    def begin(self, brokers: Iterable[BrokerImage], now_ms: float) -> None:
        """Begin to count, as a controller that has just become active.

        Brokers that are fenced have no session: another process may register their id at once.
        """
        self.sessions = {
            broker.broker_id: BrokerSession(now_ms, is_heard_of=False)
            for broker in brokers
            if not broker.fenced
        }

    def register(self, broker_id: int, now_ms: float) -> None:
        """Begin a session of a broker that has registered."""
        self.sessions[broker_id] = BrokerSession(now_ms, is_heard_of=True)

    def touch(self, broker_id: int, metadata_offset: int, now_ms: float) -> BrokerSession:
        """Note a heartbeat."""
        session = self.sessions.get(broker_id)
        if session is None:
            session = self.sessions[broker_id] = BrokerSession(now_ms, is_heard_of=True)
        session.contact_ms = now_ms
        session.is_heard_of = True
        session.lost_ms = None
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    def lose(self, broker_id: int, now_ms: float) -> None:
        """Note that the connections of a broker were closed: its process may have died."""
        session = self.sessions.get(broker_id)
        if session is not None and session.lost_ms is None:
            session.lost_ms = now_ms

    def find(self, broker_id: int) -> None:
        """Note that a broker still listens, whatever happened to its connections."""
        session = self.sessions.get(broker_id)
        if session is not None:
            session.lost_ms = None

    def end(self, broker_id: int, asked_ms: float) -> None:
        """Note that nobody listened at a broker's address, unless it was heard of since then."""
        session = self.sessions.get(broker_id)
        if session is not None and session.contact_ms <= asked_ms:
            session.lost_ms = asked_ms - self._grace_ms

    def is_alive(self, broker_id: int, now_ms: float) -> bool:
        """Return True if a broker was heard of within the session timeout."""
        session = self.sessions.get(broker_id)
        return session is not None and now_ms < self._ends_ms(session)

    def is_heard_of(self, broker_id: int) -> bool:
        """Return True if this controller has heard of a broker, not only an earlier one."""
        session = self.sessions.get(broker_id)
        return session is not None and session.is_heard_of

    def stale(self, unfenced: Iterable[int], now_ms: float) -> list[int]:
        """Return those of the brokers that were not heard of for too long."""
        return [broker_id for broker_id in unfenced if not self.is_alive(broker_id, now_ms)]

    def next_check_ms(self, unfenced: Iterable[int]) -> float | None:
        """Return when the next of the brokers could become stale."""
        return min(self._deadlines(unfenced), default=None)

    def lowest_offset(self, active: Iterable[int]) -> int:
        """Return up to where all these brokers have the metadata."""
        offsets = [self.sessions[i].metadata_offset for i in active if i in self.sessions]
        return min(offsets, default=2**63 - 1)

    def _deadlines(self, broker_ids: Iterable[int]) -> Iterator[float]:
        for broker_id in broker_ids:
            session = self.sessions.get(broker_id)
            if session is not None:
                yield self._ends_ms(session)

    def _ends_ms(self, session: BrokerSession) -> float:
        ends_ms = session.contact_ms + self._session_timeout_ms
        if session.lost_ms is not None:
            ends_ms = min(ends_ms, session.lost_ms + self._grace_ms)
        return ends_ms
